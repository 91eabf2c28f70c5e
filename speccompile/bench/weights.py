"""The bytes of weights that one run of an ONNX graph reads, from the file alone: the runtime has no `onnx` package.

Only what is needed of the format is read: https://protobuf.dev/programming-guides/encoding, with the field numbers of
https://github.com/onnx/onnx/blob/main/onnx/onnx.proto3.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import ceil, prod
from pathlib import Path

BITS = {1: 32, 2: 8, 3: 8, 4: 16, 5: 16, 6: 32, 7: 64, 9: 8, 10: 16, 11: 64, 12: 32, 13: 64, 14: 64, 15: 128, 16: 16,
        17: 8, 18: 8, 19: 8, 20: 8, 21: 4, 22: 4, 23: 4, 24: 8, 25: 2, 26: 2, 27: 6, 28: 6}  # fmt: skip
"""onnx.TensorProto.DataType -> bits of one element. Texts are no weights."""

LOOKUPS = {"Gather": (0,), "GatherBlockQuantized": (0, 2, 3)}
"""Operators that read some rows of a table -> which of their inputs are tables."""

PASSED_ON = ("Cast", "DequantizeLinear", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
"""Operators whose result is computed once, when the graph is opened, where they have a weight: who reads that, reads
the weight."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


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
    for number, value in _fields(memoryview(path.read_bytes())):
        if number == 7:
            _read_graph(_bytes(value), graph)
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


def _read_graph(data: memoryview, graph: _Graph) -> None:
    for number, value in _fields(data):
        if number == 1:
            _read_node(_bytes(value), graph)
        elif number == 5:
            name, size, rows = _initializer(_bytes(value))
            graph.initializers[name] = size, rows


def _read_node(data: memoryview, graph: _Graph) -> None:
    inputs, outputs, operator = [], [], ""
    for number, value in _fields(data):
        if number == 1:
            inputs.append(_text(value))
        elif number == 2:
            outputs.append(_text(value))
        elif number == 4:
            operator = _text(value)
        elif number == 5:  # an attribute, which may be a graph, or several
            for inner, content in _fields(_bytes(value)):
                if inner in (6, 11):
                    _read_graph(_bytes(content), graph)
    for place, name in enumerate(inputs):
        graph.uses[name].append((operator, place, outputs[0] if outputs else ""))


def _initializer(data: memoryview) -> tuple[str, int, int]:
    """Name, bytes and rows."""
    name, kind, shape = "", 0, list[int]()
    for number, value in _fields(data):
        if number == 1:
            shape += [value] if isinstance(value, int) else _packed(value)
        elif number == 2:
            assert isinstance(value, int)
            kind = value
        elif number == 8:
            name = _text(value)
    return name, ceil(prod(shape) * BITS.get(kind, 0) / 8), shape[0] if shape else 1


def _fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """The fields of a message: number, and what it holds."""
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, place = _varint(data, place)
            yield number, value
            continue
        if kind == _BYTES:
            size, place = _varint(data, place)
        else:
            size = {_FIXED64: 8, _FIXED32: 4}[kind]
        yield number, data[place : place + size]
        place += size


def _varint(data: memoryview, place: int) -> tuple[int, int]:
    """A number of seven bits a byte, the lowest first, and the place behind it."""
    value = shift = 0
    while True:
        byte = data[place]
        value, shift, place = value | (byte & 127) << shift, shift + 7, place + 1
        if byte < 128:
            return value, place


def _packed(data: memoryview) -> list[int]:
    values, place = [], 0
    while place < len(data):
        value, place = _varint(data, place)
        values.append(value)
    return values


def _bytes(value: int | memoryview) -> memoryview:
    assert isinstance(value, memoryview)
    return value


def _text(value: int | memoryview) -> str:
    return bytes(_bytes(value)).decode()
