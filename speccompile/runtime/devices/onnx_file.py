"""The part of ONNX's file format that mapping weights needs: locations of initializers. No onnx package is needed."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from speccompile.runtime.devices.protobuf import bytes_field, integer_field, read_fields

_GRAPH = 7  # of a ModelProto
_INITIALIZER, _OUTPUT = 5, 12  # of a GraphProto
_DIMS, _DATA_TYPE, _TENSOR_NAME, _EXTERNAL_DATA, _DATA_LOCATION = 1, 2, 8, 13, 14  # of a TensorProto
_KEY, _VALUE = 1, 2  # of a StringStringEntryProto
_UINT8, _EXTERNAL = 2, 1


@dataclass(frozen=True)
class PlaceholderInitializer:
    """An initializer of one byte, the first of a file. Its other entries point ONNX Runtime to packed weights in that
    file."""

    location: bytes
    entries: dict[str, str]


def external_data(model: bytes) -> Iterator[dict[str, str]]:
    """Yield the external-data entries of each initializer in a file: its `location`, `offset`, `length` and other
    keys."""
    for graph in _values(model, _GRAPH):
        for tensor in _values(graph, _INITIALIZER):
            if found := dict(_entry(each) for each in _values(tensor, _EXTERNAL_DATA)):
                yield {key.decode(): value.decode() for key, value in found.items()}


def with_carriers(model: bytes, locate: Callable[[bytes], bytes], carriers: Sequence[PlaceholderInitializer]) -> bytes:
    """Return the model with the locations of its initializers mapped by `locate`, and with placeholder initializers.

    A placeholder is also an output of the graph, because unused initializers are removed; it need not be bound.
    """

    def moved(entry: bytes) -> bytes:
        key, value = _entry(entry)
        return bytes_field(_KEY, key) + bytes_field(_VALUE, locate(value)) if key == b"location" else entry

    def extended(graph: bytes) -> bytes:
        graph = _changed(graph, _INITIALIZER, lambda tensor: _changed(tensor, _EXTERNAL_DATA, moved))
        return graph + b"".join(_carrier(f"packed.{index}", each) for index, each in enumerate(carriers))

    return _changed(model, _GRAPH, extended)


def _carrier(name: str, carrier: PlaceholderInitializer) -> bytes:
    entries = {"location": carrier.location, "offset": b"0", "length": b"1"}
    entries |= {key: value.encode() for key, value in carrier.entries.items()}
    tensor = integer_field(_DIMS, 1) + integer_field(_DATA_TYPE, _UINT8) + bytes_field(_TENSOR_NAME, name.encode())
    for key, value in entries.items():
        tensor += bytes_field(_EXTERNAL_DATA, bytes_field(_KEY, key.encode()) + bytes_field(_VALUE, value))
    tensor += integer_field(_DATA_LOCATION, _EXTERNAL)
    shape = bytes_field(2, bytes_field(1, integer_field(1, 1)))  # TypeProto.Tensor.shape: one dim, whose dim_value is 1
    kind = bytes_field(1, integer_field(1, _UINT8) + shape)  # TypeProto.tensor_type: elem_type and shape
    info = bytes_field(1, name.encode()) + bytes_field(2, kind)  # ValueInfoProto: name and type
    return bytes_field(_INITIALIZER, tensor) + bytes_field(_OUTPUT, info)


def _entry(message: bytes) -> tuple[bytes, bytes]:
    (key,), (value,) = _values(message, _KEY), _values(message, _VALUE)
    return key, value


def _values(message: bytes, number: int) -> list[bytes]:
    return [field.value for field in read_fields(message) if field.number == number]


def _changed(message: bytes, number: int, change: Callable[[bytes], bytes]) -> bytes:
    """Return the message with the values of all fields of this number changed."""
    return b"".join(
        bytes_field(number, change(field.value)) if field.number == number else field.whole
        for field in read_fields(message)
    )
