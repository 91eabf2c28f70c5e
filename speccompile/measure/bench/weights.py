"""Bytes of weights that one run of an ONNX graph reads, from the file alone: the runtime has no `onnx` package.

The parser covers only the needed fields, by the field numbers of
https://github.com/onnx/onnx/blob/main/onnx/onnx.proto3.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import ceil, prod
from pathlib import Path

from speccompile.runtime.devices.protobuf import read_fields, read_integer

BITS = {1: 32, 2: 8, 3: 8, 4: 16, 5: 16, 6: 32, 7: 64, 9: 8, 10: 16, 11: 64, 12: 32, 13: 64, 14: 64, 15: 128, 16: 16,
        17: 8, 18: 8, 19: 8, 20: 8, 21: 4, 22: 4, 23: 4, 24: 8, 25: 2, 26: 2, 27: 6, 28: 6}  # fmt: skip
"""onnx.TensorProto.DataType -> bits of one element. Strings are no weights."""

LOOKUPS = {"Gather": (0,), "GatherBlockQuantized": (0, 2, 3)}
LOOKUPS |= {"EmbedFloat32": (1,), "EmbedBFloat16": (1,), "EmbedInt8": (1, 2)}
LOOKUPS |= {"EmbedBlocks4": (1, 2, 3), "EmbedBlocks8": (1, 2, 3)}
"""Operators that read some rows of a table -> indices of the inputs that are tables. In the project's own layout
rows lie in tiles: reading one row of a tile reads the memory of the whole tile."""

PASSED_ON = ("Cast", "DequantizeLinear", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
"""Operators that, applied to a weight, are folded when the graph is opened. Readers of their result read the weight."""


@dataclass(frozen=True)
class WeightReads:
    """Bytes of weights that one run reads.

    whole: bytes of fully read weights, once per reading node. row: bytes of one row of every token table, once per
    node that looks rows up."""

    whole: int
    row: int


@dataclass
class _Graph:
    """Parsed graph. initializers: name -> (bytes, rows). uses: name -> (operator, input index, its first output)."""

    initializers: dict[str, tuple[int, int]] = field(default_factory=dict)
    uses: dict[str, list[tuple[str, int, str]]] = field(default_factory=lambda: defaultdict(list))


def weight_reads(path: Path) -> WeightReads:
    """Return the bytes of weights that one run of this ONNX file reads, internal or external.

    A node of a subgraph counts as one run.
    """
    graph = _Graph()
    for found in read_fields(path.read_bytes()):
        if found.number == 7:
            _read_graph(found.value, graph)
    whole = row = 0
    for name, (size, rows) in graph.initializers.items():
        readers = list(_readers(graph, name))
        whole += size * readers.count(False)
        row += size // max(rows, 1) * readers.count(True)
    return WeightReads(whole, row)


def _readers(graph: _Graph, name: str) -> Iterator[bool]:
    """Yield, for every node that reads a value, whether it looks rows up."""
    for operator, place, output in graph.uses[name]:
        if operator in PASSED_ON and graph.uses.get(output):
            yield from _readers(graph, output)
        else:
            yield place in LOOKUPS.get(operator, ())


def _read_graph(message: bytes, graph: _Graph) -> None:
    for found in read_fields(message):
        if found.number == 1:
            _read_node(found.value, graph)
        elif found.number == 5:
            name, size, rows = _initializer(found.value)
            graph.initializers[name] = size, rows


def _read_node(message: bytes, graph: _Graph) -> None:
    inputs, outputs, operator = [], [], ""
    for found in read_fields(message):
        if found.number == 1:
            inputs.append(found.value.decode())
        elif found.number == 2:
            outputs.append(found.value.decode())
        elif found.number == 4:
            operator = found.value.decode()
        elif found.number == 5:  # an attribute, which may hold one graph or several
            for inner in read_fields(found.value):
                if inner.number in (6, 11):
                    _read_graph(inner.value, graph)
    for place, name in enumerate(inputs):
        graph.uses[name].append((operator, place, outputs[0] if outputs else ""))


def _initializer(message: bytes) -> tuple[str, int, int]:
    """Return the name, bytes and rows of an initializer."""
    name, kind, shape = "", 0, list[int]()
    for found in read_fields(message):
        if found.number == 1:  # a single dimension, or all of them packed
            shape += _packed(found.value) or [found.integer]
        elif found.number == 2:
            kind = found.integer
        elif found.number == 8:
            name = found.value.decode()
    return name, ceil(prod(shape) * BITS.get(kind, 0) / 8), shape[0] if shape else 1


def _packed(message: bytes) -> list[int]:
    values, at = [], 0
    while at < len(message):
        value, at = read_integer(message, at)
        values.append(value)
    return values
