"""The little of ONNX's file format that mapping weights needs: where initializers lie. Protobuf alone, no onnx package.

A message is a row of fields, each a tag (its number, and how its value is written) and the value: an integer of seven
bits a byte, four or eight bytes, or a length and as many bytes, which may be a message again.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

_GRAPH = 7  # of a ModelProto
_INITIALIZER, _OUTPUT = 5, 12  # of a GraphProto
_DIMS, _DATA_TYPE, _TENSOR_NAME, _EXTERNAL_DATA, _DATA_LOCATION = 1, 2, 8, 13, 14  # of a TensorProto
_KEY, _VALUE = 1, 2  # of a StringStringEntryProto
_UINT8, _EXTERNAL = 2, 1


@dataclass(frozen=True)
class Carrier:
    """An initializer of one byte, the first of a file, whose other entries tell ONNX Runtime of more in that file."""

    location: bytes
    entries: dict[str, str]


def external_data(model: bytes) -> Iterator[dict[str, str]]:
    """What a serialized model says of each initializer in a file: its `location`, `offset`, `length` and other keys."""
    for graph in _values(model, _GRAPH):
        for tensor in _values(graph, _INITIALIZER):
            if found := dict(_entry(each) for each in _values(tensor, _EXTERNAL_DATA)):
                yield {key.decode(): value.decode() for key, value in found.items()}


def with_carriers(model: bytes, locate: Callable[[bytes], bytes], carriers: Sequence[Carrier]) -> bytes:
    """The model with its initializers where `locate` says of their location, and carriers.

    A carrier is an output of the graph as well, because what nothing reads is removed; nobody need bind it.
    """

    def moved(entry: bytes) -> bytes:
        key, value = _entry(entry)
        return _bytes(_KEY, key) + _bytes(_VALUE, locate(value)) if key == b"location" else entry

    def extended(graph: bytes) -> bytes:
        graph = _changed(graph, _INITIALIZER, lambda tensor: _changed(tensor, _EXTERNAL_DATA, moved))
        return graph + b"".join(_carrier(f"packed.{index}", each) for index, each in enumerate(carriers))

    return _changed(model, _GRAPH, extended)


def _carrier(name: str, carrier: Carrier) -> bytes:
    entries = {"location": carrier.location, "offset": b"0", "length": b"1"}
    entries |= {key: value.encode() for key, value in carrier.entries.items()}
    tensor = _integer(_DIMS, 1) + _integer(_DATA_TYPE, _UINT8) + _bytes(_TENSOR_NAME, name.encode())
    for key, value in entries.items():
        tensor += _bytes(_EXTERNAL_DATA, _bytes(_KEY, key.encode()) + _bytes(_VALUE, value))
    tensor += _integer(_DATA_LOCATION, _EXTERNAL)
    shape = _bytes(2, _bytes(1, _integer(1, 1)))  # TypeProto.Tensor.shape: one dim, whose dim_value is 1
    kind = _bytes(1, _integer(1, _UINT8) + shape)  # TypeProto.tensor_type: elem_type and shape
    info = _bytes(1, name.encode()) + _bytes(2, kind)  # ValueInfoProto: name and type
    return _bytes(_INITIALIZER, tensor) + _bytes(_OUTPUT, info)


def _entry(message: bytes) -> tuple[bytes, bytes]:
    (key,), (value,) = _values(message, _KEY), _values(message, _VALUE)
    return key, value


def _values(message: bytes, number: int) -> list[bytes]:
    return [value for found, value, _ in _fields(message) if found == number]


def _changed(message: bytes, number: int, change: Callable[[bytes], bytes]) -> bytes:
    """The message with the values of all fields of a number changed."""
    fields = _fields(message)
    return b"".join(_bytes(number, change(value)) if found == number else whole for found, value, whole in fields)


def _fields(message: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Number, value and whole of each field. The value of an integer is left out: none is asked for."""
    at = 0
    while at < len(message):
        start = at
        tag, at = _read_integer(message, at)
        match tag & 7:
            case 0:
                size, (_, at) = 0, _read_integer(message, at)
            case 1:
                size = 8
            case 2:
                size, at = _read_integer(message, at)
            case 5:
                size = 4
            case kind:
                raise ValueError(f"no ONNX model: a field is written in the way {kind}, which protobuf does not have")
        yield tag >> 3, message[at : at + size], message[start : at + size]
        at += size


def _read_integer(message: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = message[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at


def _write_integer(number: int) -> bytes:
    written = bytearray()
    while number >= 0x80:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*written, number])


def _integer(number: int, value: int) -> bytes:
    return _write_integer(number << 3) + _write_integer(value)


def _bytes(number: int, value: bytes) -> bytes:
    return _write_integer(number << 3 | 2) + _write_integer(len(value)) + value
