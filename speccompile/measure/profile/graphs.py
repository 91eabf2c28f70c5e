"""Graphs of repeated kernels, as serialized ONNX models: a device has no `onnx` package.

Field numbers: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto3. A graph chains nodes of one operator, so that
one run takes long enough to be timed, and every linear layer reads weights that no other node has read.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from speccompile.native import DOMAIN
from speccompile.plan.precisions import IN_BLOCKS, OWN_LAYOUTS, PRECISIONS
from speccompile.runtime.devices.protobuf import bytes_field, bytes_header, integer_field

IR_VERSION, OPSET = 10, 24
"""Versions of the files that a build writes."""

PAGE = 4096
"""Multiple at which weights begin in a file."""

TILE, BLOCK = 16, 32
"""Columns of a tile of weights; weights of int4 that share a scale."""

HEADS, GROUPS, WIDTH = 8, 4, 64
"""Shape of the timed attention: heads of queries, heads of keys and values, numbers of a head."""

_BYTES = {word: PRECISIONS[word].bits / 8 + PRECISIONS[word].block_bytes / BLOCK for word in OWN_LAYOUTS}
_BYTES |= {"codes of 8 bits": 1 + 4 / BLOCK, "codes of 4 bits": 0.5 + 8 / BLOCK}
"""Codes of GGUF files: with a scale in each block, those of 4 bits with an offset, as in Q8_0 and Q4_K."""
_NUMBERS = {"float32": 1, "uint8": 2, "int64": 7, "float16": 10, "bfloat16": 16}
"""Dtype -> its number in onnx.TensorProto.DataType."""
_PIECE = 1 << 16
"""Numbers that are drawn; a weight repeats them, because no kernel's time depends on values."""


Shape = Sequence[int | None]
"""Sizes of a tensor's axes; None for the number of rows, which differs between runs."""


def bytes_per_weight(precision: str) -> float:
    """Return the bytes that a product reads for one weight, scales of blocks included."""
    return _BYTES[precision]


@dataclass
class KernelGraph:
    """Graph under construction. Inputs and outputs are float32 unless a dtype is given; an axis of None is the rows."""

    inputs: list[bytes] = field(default_factory=list)
    constants: list[list[bytes]] = field(default_factory=list)
    nodes: list[bytes] = field(default_factory=list)

    def input(self, name: str, shape: Shape, dtype: str = "float32") -> str:
        self.inputs.append(_value(name, shape, dtype))
        return name

    def constant(self, name: str, values: NDArray[Any], dtype: str) -> str:
        dims = b"".join(integer_field(1, size) for size in values.shape)
        kind, raw = integer_field(2, _NUMBERS[dtype]), values.tobytes()
        head = dims + kind + bytes_field(8, name.encode()) + bytes_header(9, len(raw))
        self.constants.append([bytes_header(5, len(head) + len(raw)) + head, raw])
        return name

    def mapped(self, name: str, values: NDArray[Any], dtype: str, file: BinaryIO) -> str:
        """Append values to a file, at a page, and refer to them there: ONNX Runtime maps them."""
        offset = -(-file.tell() // PAGE) * PAGE
        file.seek(offset)
        file.write(values.data)
        places = {"location": Path(file.name).name, "offset": str(offset), "length": str(values.nbytes)}
        entries = (bytes_field(1, key.encode()) + bytes_field(2, value.encode()) for key, value in places.items())
        body = b"".join(integer_field(1, size) for size in values.shape) + integer_field(2, _NUMBERS[dtype])
        body += bytes_field(8, name.encode()) + b"".join(bytes_field(13, each) for each in entries)
        self.constants.append([bytes_field(5, body + integer_field(14, 1))])
        return name

    def node(self, operator: str, inputs: Sequence[str], output: str, domain: str = DOMAIN, **attributes: Any) -> str:
        message = b"".join(bytes_field(1, name.encode()) for name in inputs) + bytes_field(2, output.encode())
        message += bytes_field(4, operator.encode()) + bytes_field(7, domain.encode())
        for name, value in attributes.items():
            message += bytes_field(5, _attribute(name, value))
        self.nodes.append(message)
        return output

    def model(self, output: str, shape: Shape, dtype: str = "float32") -> bytes:
        """Return the serialized model with this output."""
        graph = b"".join(bytes_field(1, node) for node in self.nodes) + bytes_field(2, b"kernels")
        graph += b"".join(bytes_field(11, value) for value in self.inputs)
        graph += bytes_field(12, _value(output, shape, dtype))
        constants = [piece for constant in self.constants for piece in constant]
        head = integer_field(1, IR_VERSION)
        for domain, version in (("", OPSET), (DOMAIN, 1)):
            head += bytes_field(8, bytes_field(1, domain.encode()) + integer_field(2, version))
        head += bytes_header(7, len(graph) + sum(map(len, constants)))
        return b"".join([head, graph, *constants])  # hundreds of megabytes: copied once


def linear_chain(precision: str, width: int, count: int, file: BinaryIO) -> bytes:
    """Return a chain of `count` linear layers [width, width]: float32 x [1, rows, width] -> y, for any rows.

    Their weights go to the file, from which they are mapped as those of a bundle are, and not copied.
    """
    graph = KernelGraph()
    graph.constant("no_bias", np.zeros(1, np.float32), "float32")
    value = graph.input("x", (1, None, width))
    block: dict[str, Any] = {"block_size": BLOCK} if precision == IN_BLOCKS else {}
    operator = f"Linear{PRECISIONS[precision].kernel}"
    for index in range(count):
        inputs = (value, *_weight(graph, precision, width, f"w{index}", file), "no_bias")
        value = graph.node(operator, inputs, f"y{index}", columns=width, depth=width, **block)
    return graph.model(value, (1, None, width))


def norm_chain(count: int, width: int) -> bytes:
    """Return a chain of `count` RmsNorm of one row: almost all of their time is what a node costs anyway."""
    graph = KernelGraph()
    graph.constant("weight", np.ones(width, np.float32), "float32")
    value = graph.input("x", (1, 1, width))
    for index in range(count):
        value = graph.node("RmsNorm", (value, "weight"), f"y{index}", epsilon=1e-6)
    return graph.model(value, (1, 1, width))


def attend_chain(count: int, rows: int, context: int) -> bytes:
    """Return a chain of `count` Attend of `rows` queries over `context` committed tokens, each with caches of its own:
    a layer's caches are not in the nearest processor cache when the next round reads them."""
    graph = KernelGraph()
    shapes = {
        "x": (1, rows, HEADS * WIDTH),
        "key_rows": (1, GROUPS, rows, WIDTH),
        "value_rows": (1, GROUPS, rows, WIDTH),
    }
    value, *given = [graph.input(name, shape) for name, shape in shapes.items()]
    counts = [graph.input("length", (1,), "int64"), graph.input("positions", (1, rows), "int64")]
    counts.append(graph.input("bias", (1, 1, rows, rows)))
    for index in range(count):
        caches = [graph.input(f"{name}{index}", (1, GROUPS, context, WIDTH)) for name in ("key", "value")]
        inputs = (value, *given, *caches, *counts)
        value = graph.node("Attend", inputs, f"y{index}", scale=WIDTH**-0.5, softcap=0.0, window=0)
    return graph.model(value, shapes["x"])


def gate_chain(count: int, width: int) -> bytes:
    """Return a chain of `count` GatedSilu of one row."""
    graph = KernelGraph()
    graph.constant("up", np.full((1, 1, width), 2, np.float32), "float32")
    value = graph.input("x", (1, 1, width))
    for index in range(count):
        value = graph.node("GatedSilu", (value, "up"), f"y{index}", width=width, gate_offset=0, up_offset=0)
    return graph.model(value, (1, 1, width))


def argmax_graph(size: int) -> bytes:
    """Return the choice of the greatest of `size` logits."""
    graph = KernelGraph()
    value = graph.input("x", (1, 1, size))
    return graph.model(graph.node("ArgMax", (value,), "y", domain="", axis=2, keepdims=0), (1, 1), "int64")


def _weight(graph: KernelGraph, precision: str, width: int, name: str, file: BinaryIO) -> list[str]:
    """Add a weight [width, width] in the layout of the kernels. Return the names of its constants."""
    tiles = width // TILE
    if precision == "float32":
        return [graph.mapped(name, _repeated((tiles, width, TILE), np.float32), "float32", file)]
    if precision == "bfloat16":  # the upper half of a float32
        upper = _repeated((tiles, width, TILE), np.float32).view(np.uint16)[..., 1::2]
        return [graph.mapped(name, np.ascontiguousarray(upper), "bfloat16", file)]
    scales = np.full(width, 0.01 / width, np.float32)
    if precision == "int8":
        numbers = _repeated((tiles, width // 4, TILE, 4), np.uint8)
        return [graph.mapped(name, numbers, "uint8", file), graph.constant(f"{name}.scales", scales, "float32")]
    blocks = (tiles, width // BLOCK, TILE)
    return [
        graph.mapped(name, _repeated((tiles, width // 8, TILE, 4), np.uint8), "uint8", file),
        graph.constant(f"{name}.scales", np.full(blocks, 1, np.float16), "float16"),
        graph.constant(f"{name}.zero_points", np.full(blocks, 8, np.uint8), "uint8"),
        graph.constant(f"{name}.factors", scales, "float32"),
    ]


@lru_cache(maxsize=2)
def _repeated(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Return random numbers: of all bytes, or floats so small that a chain of products neither grows nor vanishes."""
    generator = np.random.default_rng(0)
    if dtype is np.uint8:
        return np.resize(generator.integers(0, 256, _PIECE, np.uint8), shape)
    deviation = (shape[1]) ** -0.5
    return np.resize(generator.normal(0, deviation, _PIECE).astype(np.float32), shape)


def _attribute(name: str, value: float) -> bytes:
    message = bytes_field(1, name.encode())
    if isinstance(value, float):
        return message + bytes([2 << 3 | 5]) + struct.pack("<f", value) + integer_field(20, 1)
    return message + integer_field(3, value) + integer_field(20, 2)


def _value(name: str, shape: Shape, dtype: str) -> bytes:
    dims = b"".join(bytes_field(1, _dimension(size)) for size in shape)
    tensor = integer_field(1, _NUMBERS[dtype]) + bytes_field(2, dims)
    return bytes_field(1, name.encode()) + bytes_field(2, bytes_field(1, tensor))


def _dimension(size: int | None) -> bytes:
    return bytes_field(2, b"rows") if size is None else integer_field(1, size)
