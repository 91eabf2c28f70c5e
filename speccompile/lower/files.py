"""Graphs on disk: one weights file for a model and its numbers, shared by its neutral graph and every lowered one."""

from collections.abc import Mapping
from pathlib import Path

import onnx_ir as ir
from blake3 import blake3
from onnx_ir.passes import common

from speccompile.contract import Graph
from speccompile.errors import BuildError
from speccompile.lower.forms import NATIVE, Form, Numbers
from speccompile.lower.passes.reduce_precision import reduce_precision
from speccompile.lower.passes.transposed_weights import transposed_weights
from speccompile.lower.quantize import QuantizeReport, quantize
from speccompile.lower.quantize.linear import HEAD, TURNED, find_linears
from speccompile.lower.quantize.shared import Shared

GRAPHS = "graphs"
"""The folder of graphs and weights in a bundle."""

Ranges = Mapping[str, tuple[float, float]]
"""Tensor name -> smallest and largest value that calibration met."""

_SMALLEST_EXTERNAL = 1024  # bytes: scalars and short tables stay in the graph


def neutral_file(graph: Graph, numbers: Numbers | None = None) -> str:
    """Where a neutral graph lies while a bundle is built, as traced or in other numbers: no part of the bundle."""
    if numbers is None or numbers.is_traced:
        return f"{GRAPHS}/{graph.name}.neutral.onnx"
    return f"{GRAPHS}/{graph.name}.{numbers.name}.neutral.onnx"


def engine_file(graph: Graph, engine: str) -> str:
    """Where a lowered graph lies in a bundle."""
    return f"{GRAPHS}/{graph.name}.{engine}.onnx"


def write_neutral(model: ir.Model, graph: Graph, folder: Path, weights: str) -> Path:
    """Tidy a traced graph and write it, its large weights into the file `weights` beside it. Returns its path.

    Weights are read from torch one at a time. Folding transposes here, before the weights are written, lets every
    backend read the same file.
    """
    common.IdentityEliminationPass()(model)
    common.CommonSubexpressionEliminationPass()(model)  # an unrolled drafter transposes each weight K times
    transposed_weights(model)
    common.RemoveUnusedNodesPass()(model)
    return save(model, folder / neutral_file(graph), weights)


def write_numbers(
    graph: Graph, part: str, numbers: Numbers, folder: Path, ranges: Ranges | None = None, target: Path | None = None
) -> QuantizeReport | None:
    """Write the neutral graph of a part in other numbers, with a weights file of its own. What was traced is there.

    ranges: of activations, for w8a8 and fp8. target: the neutral graph whose weights a drafter may read as they are
    stored there. Returns what was quantized, None for plain dtypes.
    """
    if numbers.is_traced:
        return None
    model, report = ir.load(folder / neutral_file(graph)), None
    if not numbers.is_dtype:
        shared = find_shared(target, numbers) if target is not None and part == "drafter" else None
        report = quantize(model, numbers.word, numbers.block_size or 0, numbers.weights, ranges, shared)
    if numbers.compute != "float32":
        reduce_precision(model, ir.DataType[numbers.compute.upper()])
    save(model, folder / neutral_file(graph, numbers), f"{part}.{numbers.name}.weights")
    return report


def share_weights(path: Path, other: Path) -> int:
    """Let a graph read those of its weights that another graph of the same folder has too from that one's file.

    Returns how many. What is left for its own file is written anew; a file of which nothing is left lies there in vain:
    see `drop_unread`.
    """
    model = ir.load(path)
    known = {_content(tensor): tensor for _, tensor in _external(ir.load(other))}
    shared = 0
    for value, tensor in _external(model):
        if (same := known.get(_content(tensor))) is not None:
            value.const_value = ir.ExternalTensor(
                same.location, same.offset, same.length, same.dtype, shape=same.shape, name=value.name,
                base_dir=path.parent,
            )  # fmt: skip
            shared += 1
    if shared:
        _keep_own(model, path.parent, {str(tensor.location) for tensor in known.values()})
    ir.save(model, path)
    return shared


def _keep_own(model: ir.Model, folder: Path, others: set[str]) -> None:
    """Write the file of a graph's own weights again, without those that lie in other files as well."""
    own = [(value, tensor) for value, tensor in _external(model) if str(tensor.location) not in others]
    for name in sorted({str(tensor.location) for _, tensor in own}):
        its = [(value, tensor) for value, tensor in own if str(tensor.location) == name]
        kept = f"{name}.own"
        written = ir.external_data.convert_tensors_to_external([tensor for _, tensor in its], folder, kept)
        (folder / kept).replace(folder / name)
        for (value, _), tensor in zip(its, written, strict=True):
            value.const_value = ir.ExternalTensor(
                name, tensor.offset, tensor.length, tensor.dtype, shape=tensor.shape, name=value.name, base_dir=folder
            )


def find_shared(target: Path, numbers: Numbers) -> Shared | None:
    """What a drafter's graph may read of a target's neutral graph as it is stored there; None where their numbers are
    one, or where only equal numbers are shared."""
    word = numbers.target_word or (numbers.word if numbers.weights == NATIVE else None)
    if word is None:
        return None
    block_size = numbers.target_block_size if numbers.target_word else numbers.block_size
    graph = ir.load(target).graph
    tied = [each.weight for each in find_linears(graph) if each.role == HEAD and each.weight.steps == TURNED]
    tensors = [weight.source.const_value for weight in tied]
    offsets = frozenset(tensor.offset or 0 for tensor in tensors if isinstance(tensor, ir.ExternalTensor))
    files = {str(tensor.location) for _, tensor in _external(ir.load(target))}
    return Shared(frozenset(files), word, block_size or 0, offsets)


def _external(model: ir.Model) -> list[tuple[ir.Value, ir.ExternalTensor]]:
    values = model.graph.initializers.values()
    return [(v, v.const_value) for v in values if isinstance(v.const_value, ir.ExternalTensor)]


def _content(tensor: ir.ExternalTensor) -> tuple[str, tuple[int, ...], bytes]:
    digest = blake3(tensor.tobytes()).digest()
    tensor.release()  # a mapped file counts as resident memory
    return str(tensor.dtype), tuple(tensor.shape.numpy()), digest


def write_lowered(model: ir.Model, graph: Graph, folder: Path, engine: str, form: Form) -> dict[str, int]:
    """Lower a neutral graph, loaded from `folder`, for an engine. It reads the same weights.

    Returns how often each pass fired.
    """
    fired = form.lower(model)
    ir.save(model, folder / engine_file(graph, engine))
    return fired


def save(model: ir.Model, path: Path, weights: str) -> Path:
    """Write a model, its large weights into the file `weights` beside it, if it has any.

    Raises OSError, or BuildError where numpy knows of a failed write only how much was written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        ir.save(model, path, external_data=weights, size_threshold_bytes=_SMALLEST_EXTERNAL)
    except OSError as error:
        if error.errno is not None:
            raise
        raise BuildError(
            f"{weights} could not be written: {error}", hint="free some disk space, or give another --output"
        ) from error
    if (path.parent / weights).stat().st_size == 0:
        (path.parent / weights).unlink()
    return path


def drop_unread(folder: Path, kept: set[str]) -> None:
    """Remove every file of the graphs folder that is neither kept nor read by a kept graph."""
    read = set(kept)
    for file in kept:
        if file.endswith(".onnx"):
            read |= {f"{GRAPHS}/{name}" for name in _weights_of(folder / file)}
    for path in (folder / GRAPHS).iterdir():
        if f"{GRAPHS}/{path.name}" not in read:
            path.unlink()


def _weights_of(path: Path) -> set[str]:
    return {str(tensor.location) for _, tensor in _external(ir.load(path))}
