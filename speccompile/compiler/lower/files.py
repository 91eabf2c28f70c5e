"""Graphs on disk. A traced graph reads the checkpoint's files; other graphs read a weights file, one for each component
and weight format."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath

import onnx
import onnx_ir as ir
from blake3 import blake3
from onnx_ir.passes import common

from speccompile.bundle.media import IMAGES_FOLDER
from speccompile.bundle.sources import AUDIO, ENCODED, SOURCE
from speccompile.compiler.lower.lowering_targets import NATIVE, LoweringTarget, WeightFormat
from speccompile.compiler.lower.passes.fix_batch import fix_batch
from speccompile.compiler.lower.passes.reduce_precision import reduce_precision
from speccompile.compiler.lower.passes.transposed_weights import transposed_weights
from speccompile.compiler.lower.quantize import QuantizeReport, fuse_linears, quantize
from speccompile.compiler.lower.quantize.linear import HEAD, TRANSPOSED, find_linears
from speccompile.compiler.lower.quantize.shared import Shared
from speccompile.compiler.weights import graph as weights_graph
from speccompile.compiler.weights.graph import LINK_SUFFIX, Weight
from speccompile.contract import Graph
from speccompile.errors import BuildError
from speccompile.progress import progress_counter

GRAPHS = "graphs"
"""Folder of graphs and weights in a bundle."""

Ranges = Mapping[str, tuple[float, float]]
"""Tensor name -> smallest and largest value in calibration."""

Write = Callable[[Sequence[ir.TensorProtocol], Path, str], Sequence[ir.ExternalTensor]]
"""Function that writes tensors into a file of a folder, and returns them as external tensors of that file."""

_SMALLEST_EXTERNAL = 1024  # bytes: scalars and short tables stay in the graph


def neutral_file(graph: Graph, weight_format: WeightFormat | None = None) -> str:
    """Return the path of a neutral graph during a build, as traced or in a weight format; it is not part of the
    bundle."""
    if weight_format is None or weight_format.is_traced:
        return f"{GRAPHS}/{graph.name}.neutral.onnx"
    return f"{GRAPHS}/{graph.name}.{weight_format.name}.neutral.onnx"


def engine_file(graph: Graph, engine: str) -> str:
    """Return the path of a lowered graph in a bundle."""
    return f"{GRAPHS}/{graph.name}.{engine}.onnx"


def write_neutral(model: ir.Model, graph: Graph, folder: Path, weights: str, *, in_place: bool = False) -> Path:
    """Tidy a traced graph and write it, with its large weights in the file `weights` of the same folder. Return its
    path.

    in_place: matrices stay in the checkpoint. Otherwise transposes are folded, as every backend reads the same file.
    """
    common.IdentityEliminationPass()(model)
    common.CommonSubexpressionEliminationPass()(model)  # an unrolled drafter transposes each weight K times
    transposed_weights(model, lambda tensor: not (in_place and isinstance(tensor, Weight)))
    common.RemoveUnusedNodesPass()(model)
    return save(model, folder / neutral_file(graph), weights, in_place=in_place)


def read_neutral(path: Path) -> ir.Model:
    """Load a traced graph with its weights in the layout of linear layers. Weights are read when they are written."""
    model = weights_graph.load(path)
    transposed_weights(model)
    return model


def write_quantized(
    graph: Graph,
    part: str,
    weight_format: WeightFormat,
    folder: Path,
    ranges: Ranges | None = None,
    target: Path | None = None,
    write: Write | None = None,
) -> QuantizeReport | None:
    """Write the neutral graph of a component in another weight format, with its own weights file. The traced graph must
    have been written.

    ranges: of activations, for w8a8 and fp8. target: the neutral graph whose stored weights a drafter may read. write:
    as in `save`. Return the quantization report, None for plain dtypes and for graphs that keep the checkpoint's
    weights.
    """
    traced, path, report = folder / neutral_file(graph), folder / neutral_file(graph, weight_format), None
    weights = f"{part}.{weight_format.name}.weights"
    if weight_format.is_traced:
        return None
    if weight_format.in_place:
        model = weights_graph.load(traced)
        fuse_linears(model)
        save(model, path, weights, in_place=True)
        return None
    model = read_neutral(traced)
    if not weight_format.is_dtype:
        shared = find_shared(target, weight_format) if target is not None and part == "drafter" else None
        report = quantize(
            model, weight_format.word, weight_format.block_size or 0, weight_format.weights, ranges, shared
        )
    if weight_format.compute != "float32":
        reduce_precision(model, ir.DataType[weight_format.compute.upper()])
    save(model, path, weights, write=write)
    return report


def share_weights(path: Path, other: Path) -> int:
    """Let a graph read the weights that it has in common with another graph of the same folder from that graph's file.

    Return their number. The remaining weights are written again into the graph's own file; a file without remaining
    weights stays until `delete_unreferenced`.
    """
    model, shared = ir.load(path), 0
    own, others = _external(model), [tensor for _, tensor in _external(ir.load(other))]
    common = {_type(tensor) for _, tensor in own} & {_type(tensor) for tensor in others}  # only these are hashed
    known = {(_type(tensor), _content(tensor)): tensor for tensor in others if _type(tensor) in common}
    for value, tensor in own:
        if _type(tensor) in common and (same := known.get((_type(tensor), _content(tensor)))) is not None:
            value.const_value = ir.ExternalTensor(
                same.location, same.offset, same.length, same.dtype, shape=same.shape, name=value.name,
                base_dir=path.parent,
            )  # fmt: skip
            shared += 1
    if shared:
        _without_shared(model, path.parent, {str(tensor.location) for tensor in others})
    ir.save(model, path)
    return shared


def _without_shared(model: ir.Model, folder: Path, others: set[str]) -> None:
    """Rewrite the file of a graph's own weights without those that other files hold as well."""
    own = [(value, tensor) for value, tensor in _external(model) if str(tensor.location) not in others]
    for name in sorted({str(tensor.location) for _, tensor in own if not str(tensor.location).endswith(LINK_SUFFIX)}):
        its = [(value, tensor) for value, tensor in own if str(tensor.location) == name]
        kept = f"{name}.own"
        written = ir.external_data.convert_tensors_to_external([tensor for _, tensor in its], folder, kept)
        (folder / kept).replace(folder / name)
        for (value, _), tensor in zip(its, written, strict=True):
            value.const_value = ir.ExternalTensor(
                name, tensor.offset, tensor.length, tensor.dtype, shape=tensor.shape, name=value.name, base_dir=folder
            )


def find_shared(target: Path, weight_format: WeightFormat) -> Shared | None:
    """Return the stored weights of a target's neutral graph that a drafter's graph may read; None if both have one
    weight format, or if only equal formats are shared."""
    word = weight_format.target_word or (weight_format.word if weight_format.weights == NATIVE else None)
    if word is None:
        return None
    block_size = weight_format.target_block_size if weight_format.target_word else weight_format.block_size
    model = weights_graph.load(target)
    tied = [
        each.weight for each in find_linears(model.graph) if each.role == HEAD and each.weight.view_ops == TRANSPOSED
    ]
    readers = {value for value in model.graph.initializers.values() if len(value.uses()) > 1}
    heads = {weights_graph.storage_key(weight.tensor) for weight in tied if weight.source in readers}
    places = {weights_graph.storage_key(value.const_value) for value in model.graph.initializers.values()}
    return Shared(frozenset(filter(None, places)), word, block_size or 0, frozenset(filter(None, heads)))


def _external(model: ir.Model) -> list[tuple[ir.Value, ir.ExternalTensor]]:
    values = model.graph.initializers.values()
    return [(v, v.const_value) for v in values if isinstance(v.const_value, ir.ExternalTensor)]


def _type(tensor: ir.ExternalTensor) -> tuple[str, tuple[int, ...]]:
    """Return the dtype and shape of a tensor."""
    return str(tensor.dtype), tuple(tensor.shape.numpy())


def _content(tensor: ir.ExternalTensor) -> bytes:
    """Return a digest of a tensor, equal for equal tensors of one dtype and shape."""
    hasher = blake3()
    if (stored := weights_graph.stored_in(tensor)) is not None:
        for part in stored.parts():
            hasher.update(stored.raw(part).tobytes())
        return hasher.digest()
    hasher.update(tensor.tobytes())
    tensor.release()  # a mapped file counts as resident memory
    return hasher.digest()


def write_lowered(model: ir.Model, graph: Graph, folder: Path, engine: str, target: LoweringTarget) -> dict[str, int]:
    """Lower a neutral graph, loaded from `folder`, for an engine, and write it. graph: its contract.

    Return the number of rewrites of each pass.
    """
    (batched,) = (tensor for tensor in graph.inputs if tensor.name in ("length", SOURCE, AUDIO, ENCODED))
    if isinstance(rows := batched.shape[0], int):
        fix_batch(model, rows)
    fired = target.lower(model)
    ir.save(model, folder / engine_file(graph, engine))
    return fired


def save(model: ir.Model, path: Path, weights: str, *, in_place: bool = False, write: Write | None = None) -> Path:
    """Write a model, with its large weights, if any, in the file `weights` of the same folder.

    in_place: tensors of a checkpoint stay there. write: replaces `write_tensors`. Raise OSError, or BuildError for a
    failed write of which numpy reports only the number of items written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if in_place:
        weights_graph.store(model, path.parent)
    large = [value for value in model.graph.initializers.values() if _is_written(value)]
    tensors = [value.const_value for value in large if value.const_value is not None]
    try:
        for value, tensor in zip(large, (write or write_tensors)(tensors, path.parent, weights), strict=True):
            value.const_value = tensor
        ir.save(model, path)
    except OSError as error:
        if error.errno is not None:
            raise
        raise BuildError(
            f"{weights} could not be written: {error}",
            hint="free some disk space, or give another --output (output=..)",
        ) from error
    if (path.parent / weights).stat().st_size == 0:
        (path.parent / weights).unlink()
    return path


def write_tensors(tensors: Sequence[ir.TensorProtocol], folder: Path, name: str) -> Sequence[ir.ExternalTensor]:
    """Write tensors into the file `name` of a folder, one after the other: each is computed when it is written."""
    with progress_counter(f"writing {name}", sum(tensor.nbytes for tensor in tensors), "bytes") as advance:
        return ir.external_data.convert_tensors_to_external(
            tensors, folder, name, callback=lambda tensor, _: advance(tensor.nbytes)
        )


def _is_written(value: ir.Value) -> bool:
    tensor = value.const_value
    if tensor is None or (isinstance(tensor, ir.ExternalTensor) and str(tensor.location).endswith(LINK_SUFFIX)):
        return False
    return tensor.nbytes > _SMALLEST_EXTERNAL


def delete_unreferenced(folder: Path, kept: set[str]) -> None:
    """Delete every file of the folders of graphs that is neither in `kept` nor read by a graph in `kept`."""
    read = set(kept)
    for file in kept:
        if file.endswith(".onnx"):
            read |= {str(PurePosixPath(file).with_name(name)) for name in weights_of(folder / file)}
    for path in [each for part in (GRAPHS, IMAGES_FOLDER) for each in (folder / part).glob("*")]:
        if path.relative_to(folder).as_posix() not in read:
            path.unlink()


def weights_of(path: Path) -> set[str]:
    """Return the names of the files, next to a graph, that hold its constants."""
    # Every key of the build cache needs them: parsing a small graph with onnx_ir takes longer than reading the cache.
    initializers = onnx.load(path, load_external_data=False).graph.initializer
    return {entry.value for tensor in initializers for entry in tensor.external_data if entry.key == "location"}
