"""A weight as a constant of an ONNX graph: read when it is written. On disk the graph names the checkpoint's own file.

    in memory     weight, float32                   Gather(weight, ids)
    on disk       weight = Cast(weight.stored)      Cast(Gather(weight.stored, ids))

where weight.stored lies in the checkpoint, in its dtype; see `quantized.constant` for a quantized weight.

A graph on disk names files in its folder. So the folder has a link for each file of a checkpoint, named by the digest
of its content: equal graphs are equal files, wherever the checkpoint is.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from blake3 import blake3

from speccompile.bundle.file_hashes import cached_file_hash
from speccompile.compiler.checkpoints.gguf.block_types import CodeKind
from speccompile.compiler.weights.gguf.weight import codes_in
from speccompile.compiler.weights.open_file import opened
from speccompile.compiler.weights.quantized import constant
from speccompile.compiler.weights.source import DTYPES, FileBacked, InMemory, LazyWeight, Transposed
from speccompile.compiler.weights.stored import Codes

LINK_SUFFIX = ".safetensors"
"""Suffix of a link's name; the digest of the content precedes it."""

STORED_SUFFIX = ".stored"

CODES = "codes of "
"""Prefix of the graph's metadata that say where codes of a weight lie. They are read where they stay as they are; the
graph's own constant is the weight in float32, for no operator of ONNX reads them."""

_TYPES = {"float32": ir.DataType.FLOAT, "float16": ir.DataType.FLOAT16, "bfloat16": ir.DataType.BFLOAT16}
_NAMES = {kind: name for name, kind in _TYPES.items()}
_MATRIX = 2
"""Minimum number of axes of constants that stay in the checkpoint; smaller ones are short, and written as float32."""


class Weight(ir.LazyTensor):
    """A float32 constant that is read on demand and not cached."""

    def __init__(self, source: LazyWeight, name: str | None = None) -> None:
        shape = ir.Shape(source.shape)
        super().__init__(lambda: ir.Tensor(source.read_all()), dtype=ir.DataType.FLOAT, shape=shape, name=name)
        self.source = source


class Coded(LazyWeight):
    """A weight whose floats lie beside the graph, and whose codes in GGUF files."""

    def __init__(self, floats: LazyWeight, codes: LazyWeight) -> None:
        self.shape, self.dtype, self._floats, self._codes = codes.shape, "float32", floats, codes

    def rows(self, part: slice) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        return self._floats.rows(part)

    def select(self, index: int) -> LazyWeight:
        return Coded(self._floats.select(index), self._codes.select(index))

    def transpose(self, axes: Sequence[int]) -> LazyWeight:
        """Return it with its axes permuted, with codes if it becomes what lies in the files."""
        codes = self._codes.transpose(axes)
        is_view = isinstance(codes, Transposed)
        return super().transpose(axes) if is_view else Coded(self._floats.transpose(axes), codes)

    def identity(self) -> Any:
        return self._codes.identity()

    @property
    def code_kind(self) -> CodeKind | None:
        return self._codes.code_kind

    def block_codes(self, part: slice) -> Codes:
        return self._codes.block_codes(part)

    @property
    def codes_place(self) -> dict[str, Any] | None:
        return self._codes.codes_place


class ComputedTensor(ir.LazyTensor):
    """A constant that is computed from weights when it is written. recipe: identity of its values, as JSON."""

    def __init__(
        self, make: Callable[[], ir.TensorProtocol], dtype: ir.DataType, shape: Sequence[int], name: str, recipe: Any
    ) -> None:
        super().__init__(make, dtype=dtype, shape=ir.Shape(shape), name=name)
        self.recipe = recipe


def identity(tensor: ir.TensorProtocol) -> Any:
    """Return the identity of a constant's values, as JSON. Weights and constants computed from them are not read."""
    if isinstance(tensor, Weight):
        return tensor.source.identity()
    if isinstance(tensor, ComputedTensor):
        return tensor.recipe
    if tensor.nbytes == 0:
        return ""
    return blake3(tensor.tobytes()).hexdigest()


StorageKey = tuple[str, int]
"""A file in the graph's folder, and the offset of the first byte there."""


def storage_key(tensor: ir.TensorProtocol | None) -> StorageKey | None:
    """Return the location of a constant, or of the weight that it transposes; None for one of several weights, or
    inside the graph."""
    if isinstance(tensor, ir.ExternalTensor):
        return str(tensor.location), tensor.offset or 0
    source = tensor.source if isinstance(tensor, Weight) else None
    while isinstance(source, Transposed):
        (source,) = source.sources
    if isinstance(source, FileBacked):
        return f"{source.content()}{LINK_SUFFIX}", source.offset
    if isinstance(source, Coded) and (place := source.codes_place) is not None and "file" in place:
        return f"{place['file']}{LINK_SUFFIX}", place["offset"]
    return storage_key(source.tensor) if isinstance(source, _Low | constant.Copy | constant.CopiedStack) else None


def source_of(tensor: ir.TensorProtocol) -> LazyWeight:
    """Return any float constant as a lazy weight."""
    return tensor.source if isinstance(tensor, Weight) else InMemory(tensor.numpy())


def put_weights(model: ir.Model, sources: Mapping[str, LazyWeight]) -> None:
    """Set the missing constants of a trace, by the names of the modules' weights."""
    for name, value in model.graph.initializers.items():
        if name in sources:
            value.const_value = Weight(sources[name], name)


def store(model: ir.Model, folder: Path) -> None:
    """Convert a graph to its form on disk, for a file in `folder`, so that it reads weights from the checkpoint. Create
    the links."""
    for name, value in list(model.graph.initializers.items()):
        weight = value.const_value
        if not isinstance(weight, Weight) or len(weight.source.shape) < _MATRIX:
            continue
        if (place := weight.source.codes_place) is not None:
            model.metadata_props[f"{CODES}{name}"] = json.dumps(place)
        node = constant.dequantize(weight.source, f"{name}{STORED_SUFFIX}", ComputedTensor)
        if node is not None:
            constant.insert(model.graph, value, node)
            continue
        stored = _stored(weight.source, f"{name}{STORED_SUFFIX}", folder)
        if stored.dtype == ir.DataType.FLOAT:
            stored.name, value.const_value = name, stored
        else:
            _narrow(model.graph, value, stored)


def _narrow(graph: ir.Graph, value: ir.Value, stored: ir.TensorProtocol) -> None:
    """Replace a weight by a stored one: cast the result of each Gather, and for all other readers the weight."""
    low = ir.Value(name=stored.name, shape=value.shape, type=ir.TensorType(stored.dtype), const_value=stored)
    for node, place in list(value.uses()):
        if _looks_up(node, place):
            rows = node.outputs[0]
            found = ir.node("Gather", [low, node.inputs[1]], dict(node.attributes))
            cast = _cast(found.outputs[0], rows)
            ir.convenience.replace_nodes_and_values(graph, node, [node], [found, cast], [rows], cast.outputs)
    if value.uses():
        cast = _cast(low, value)
        graph.insert_before(graph[0], cast)
        ir.convenience.replace_all_uses_with(value, cast.outputs[0], replace_graph_outputs=True)
    del graph.initializers[str(value.name)]
    graph.register_initializer(low)


def _cast(low: ir.Value, like: ir.Value) -> ir.Node:
    node = ir.node("Cast", [low], {"to": int(ir.DataType.FLOAT)})
    wide = node.outputs[0]
    wide.name, wide.shape, wide.type = like.name, like.shape, ir.TensorType(ir.DataType.FLOAT)
    return node


def _looks_up(node: ir.Node, place: int) -> bool:
    return (node.domain, node.op_type, place) == ("", "Gather", 0)


def _stored(source: LazyWeight, name: str, folder: Path) -> "ir.ExternalTensor | ir.LazyTensor":
    """Return the constant on disk. A weight derived from several is written as a copy, in their dtype, with the graph's
    other constants."""
    if isinstance(source, FileBacked):
        file, shape = _link(source.content(), source.place.path, folder), ir.Shape(source.shape)
        place = source.place
        return ir.ExternalTensor(
            file, place.offset, place.length, _TYPES[source.dtype], shape=shape, name=name, base_dir=folder
        )
    kind = DTYPES[source.dtype]
    return ir.LazyTensor(
        lambda: ir.Tensor(source.read_all().astype(kind, copy=False)),
        dtype=_TYPES[source.dtype], shape=ir.Shape(source.shape), name=name,
    )  # fmt: skip


def link_file(path: Path, folder: Path, advance: Callable[[int], object] = int) -> None:
    """Link a file of a checkpoint into `folder`, for its graphs. advance: receives the number of bytes read for
    hashing."""
    _link(cached_file_hash(path, advance), path, folder)


def _link(content: str, path: Path, folder: Path) -> str:
    """Return the name in `folder` of a file with this content."""
    name = f"{content}{LINK_SUFFIX}"
    if not (folder / name).is_symlink():
        (folder / name).symlink_to(path.resolve())
    return name


def load(path: Path) -> ir.Model:
    """Load a graph from disk into its form in memory."""
    model = ir.load(path)
    for node, copy in constant.extract(model.graph, STORED_SUFFIX):
        (wide,) = node.outputs
        _stand_in(model.graph, wide, Weight(copy, wide.name))
    for name, value in list(model.graph.initializers.items()):
        tensor, place = value.const_value, model.metadata_props.pop(f"{CODES}{name}", None)
        if tensor is not None and place is not None:
            value.const_value = Weight(_coded(tensor, json.loads(place), path.parent), name)
        elif tensor is not None and (stored := stored_in(tensor)) is not None:
            weight = Weight(stored, str(name).removesuffix(STORED_SUFFIX))
            if tensor.dtype == ir.DataType.FLOAT:
                value.const_value = weight
            else:
                _widen(model.graph, value, weight)
        elif str(name).endswith(STORED_SUFFIX) and tensor is not None:
            _widen(model.graph, value, Weight(_Low(tensor), str(name).removesuffix(STORED_SUFFIX)))
    return model


def _coded(tensor: ir.TensorProtocol, place: Mapping[str, Any], folder: Path) -> Coded:
    """Return a weight of GGUF files, to which `folder` has links, and its floats."""
    return Coded(_Low(tensor), codes_in(lambda file: opened((folder / f"{file}{LINK_SUFFIX}").resolve()), place))


def _stand_in(graph: ir.Graph, wide: ir.Value, weight: Weight) -> None:
    value = ir.Value(name=weight.name, shape=wide.shape, type=wide.type, const_value=weight)
    ir.convenience.replace_all_uses_with(wide, value, replace_graph_outputs=True)
    wide.name = None
    graph.register_initializer(value)


def stored_in(tensor: ir.TensorProtocol) -> FileBacked | None:
    """Return the weight of a graph's constant on disk; None for one that lies in no checkpoint."""
    if not isinstance(tensor, ir.ExternalTensor) or not str(tensor.location).endswith(LINK_SUFFIX):
        return None
    location = str(tensor.location)
    content = location.removesuffix(LINK_SUFFIX)
    shape = tuple(tensor.shape.numpy())
    path = Path(tensor.base_dir) / location
    return FileBacked(opened(path.resolve()), tensor.offset or 0, shape, _NAMES[tensor.dtype], lambda: content)


class _Low(LazyWeight):
    """A constant in a smaller dtype."""

    def __init__(self, tensor: ir.TensorProtocol) -> None:
        self.shape, self.dtype, self.tensor = tuple(tensor.shape.numpy()), _NAMES[tensor.dtype], tensor

    def rows(self, part: slice) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        return self.tensor.numpy()[part].astype(np.float32, copy=False)

    def identity(self) -> object:
        return InMemory(self.tensor.numpy()).identity()


def _widen(graph: ir.Graph, low: ir.Value, weight: Weight) -> None:
    """Replace the Casts of a stored weight, and of rows gathered from it, by the float32 weight."""
    kind = ir.TensorType(ir.DataType.FLOAT)
    value = ir.Value(name=weight.name, shape=low.shape, type=kind, const_value=weight)
    for node, place in list(low.uses()):
        if _looks_up(node, place):
            (cast,) = node.outputs[0].consumers()
            rows, wide = node.outputs[0], cast.outputs[0]
            node.replace_input_with(0, value)
            rows.type, wide_name = kind, wide.name
        else:
            cast, rows, wide_name = node, value, None
            wide = cast.outputs[0]
        ir.convenience.replace_all_uses_with(wide, rows, replace_graph_outputs=True)
        graph.remove(cast, safe=True)
        wide.name = None
        if wide_name is not None:
            rows.name = wide_name
    del graph.initializers[str(low.name)]
    graph.register_initializer(value)
