"""The bytes of weights that one run of an ONNX graph reads, from the file alone: the runtime has no `onnx` package.

Only what is needed of the format is read, by the field numbers of
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
"""onnx.TensorProto.DataType -> bits of one element. Texts are no weights."""

LOOKUPS = {"Gather": (0,), "GatherBlockQuantized": (0, 2, 3)}
LOOKUPS |= {"EmbedFloat32": (1,), "EmbedBFloat16": (1,), "EmbedInt8": (1, 2)}
"""Operators that read some rows of a table -> which of their inputs are tables. In the project's own layout
rows lie in tiles, and who reads one of a tile's reads all of its memory."""

PASSED_ON = ("Cast", "DequantizeLinear", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
"""Operators whose result is computed once, when the graph is opened, where they have a weight: who reads that, reads
the weight."""


@dataclass(frozen=True)
class WeightReads:
    """whole: bytes of the weights that are read to their end, as often as a node reads them. row: bytes of one row of
    every table in which tokens are looked up, each as often as a node does."""

    whole: int
    row: int


@dataclass
class _Graph:
    """initializers: name -> (bytes, rows). uses: name -> (operator, place among its inputs, its first output)."""

    initializers: dict[str, tuple[int, int]] = field(default_factory=dict)
    uses: dict[str, list[tuple[str, int, str]]] = field(default_factory=lambda: defaultdict(list))


def weight_reads(path: Path) -> WeightReads:
    """What one run of the graph in this ONNX file reads of its weights, wherever they lie.

    Nodes of subgraphs count as if they ran once.
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
    """Of every node that reads a value: whether it looks rows up."""
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
        elif found.number == 5:  # an attribute, which may be a graph, or several
            for inner in read_fields(found.value):
                if inner.number in (6, 11):
                    _read_graph(inner.value, graph)
    for place, name in enumerate(inputs):
        graph.uses[name].append((operator, place, outputs[0] if outputs else ""))


def _initializer(message: bytes) -> tuple[str, int, int]:
    """Name, bytes and rows."""
    name, kind, shape = "", 0, list[int]()
    for found in read_fields(message):
        if found.number == 1:  # one dimension by itself, or all in a row
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
