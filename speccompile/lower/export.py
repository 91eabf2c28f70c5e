"""torch -> neutral ONNX: trace a module of the round, translate it, name its inputs and outputs by the contract."""

import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from io import StringIO
from typing import Any

import onnx_ir as ir
import onnxscript
import torch
from onnx_ir.passes import common
from torch import Tensor, nn

from speccompile.contract import Graph
from speccompile.contract import Tensor as Spec
from speccompile.errors import UnsupportedModelError
from speccompile.lower import neutral
from speccompile.models.load import first_line
from speccompile.step.draft import Drafter
from speccompile.step.verify import Verify

# Sizes for the trace. Different ones, so that no two varying widths are taken for the same.
_TRACE_WIDTHS = {"window": 7, "logit_rows": 5, "catch_up": 4}


@dataclass(frozen=True)
class Exported:
    """A neutral graph and its part of the contract."""

    graph: Graph
    model: ir.Model


def verify_graph(verify: Verify) -> Graph:
    """The contract of the `verify` graph."""
    shape = verify.decoder.shape
    batch, vocabulary = shape.batch_size, verify.decoder.model.config.vocab_size
    caches = _states([(f"target.{('key', 'value')[i % 2]}.{i // 2}", "float32", s)
                      for i, s in enumerate(verify.decoder.cache_shapes())])  # fmt: skip
    inputs = [
        _io("window", (batch, "window")),
        _io("n_given", (batch,)),
        _io("n_total", (batch,)),
        _io("length", (batch,)),
        Spec("logit_rows", "int64", ("logit_rows",), "logit_rows", "index"),
    ]
    outputs = [
        _io("path", (batch, "window+1")),
        _io("n_path", (batch,)),
        Spec("logits", "float32", (batch, "logit_rows", vocabulary), "logits", "optional"),
    ]
    return Graph("verify", (*inputs, *caches), (*outputs, *map(_updated, caches)))


def draft_graph(drafter: Drafter, batch: int) -> Graph:
    """The contract of the `draft` graph."""
    states = _states([(s.name, str(s.dtype).removeprefix("torch."), s.shape) for s in drafter.states()])
    inputs = [_io("path", (batch, "window+1")), _io("n_path", (batch,)), _io("length", (batch,))]
    if drafter.catch_up:
        inputs.append(Spec("catch_up", "int64", ("catch_up",), "catch_up", "index"))
    outputs = [
        _io("next_window", (batch, drafter.tokens + 1), "window"),
        _io("next_total", (batch,), "n_total"),
    ]
    return Graph("draft", (*inputs, *states), (*outputs, *map(_updated, states)))


def export_verify(verify: Verify) -> Exported:
    """Trace the verification."""
    graph = verify_graph(verify)
    return _export(graph, _Flat(verify, lambda io, states: (*io, states)))


def export_draft(drafter: Drafter, batch: int) -> Exported:
    """Trace the drafter."""
    graph = draft_graph(drafter, batch)
    if drafter.catch_up:
        return _export(graph, _Flat(drafter, lambda io, states: (*io, states)))
    return _export(graph, _Flat(drafter, lambda io, states: (*io, io[0][0], states)))


class _Flat(nn.Module):
    """The module with one flat list of inputs and outputs, in the order of the contract."""

    def __init__(self, module: nn.Module, arguments: Callable[[list[Tensor], list[Tensor]], tuple[Any, ...]]) -> None:
        super().__init__()
        self.module, self.arguments = module, arguments

    def forward(self, io: list[Tensor], states: list[Tensor]) -> tuple[Tensor, ...]:
        *outputs, states = self.module(*self.arguments(io, states))
        return (*outputs, *states)


def _io(name: str, shape: tuple[int | str, ...], buffer: str | None = None) -> Spec:
    return Spec(name, "int64", shape, buffer or name, "io")


def _states(rows: list[tuple[str, str, tuple[int, ...]]]) -> list[Spec]:
    return [Spec(name, dtype, shape, name, "state") for name, dtype, shape in rows]


def _updated(state: Spec) -> Spec:
    return Spec(f"{state.name}.out", state.dtype, state.shape, state.buffer, "state")


def _example(spec: Spec) -> Tensor:
    """Values for the trace: any that are valid together; graphs must not depend on them."""
    shape = spec.concrete_shape(_TRACE_WIDTHS)
    dtype = getattr(torch, spec.dtype)
    if spec.role == "index":
        return torch.arange(shape[0])
    values = {"n_given": 3, "n_total": 5, "length": 2, "n_path": 4}
    return torch.full(shape, values.get(spec.name, 1 if spec.role == "io" else 0), dtype=dtype)


def _dynamic(spec: Spec) -> dict[int, Any]:
    return {axis: torch.export.Dim.DYNAMIC for axis, size in enumerate(spec.shape) if isinstance(size, str)}


def _translation() -> dict[Any, Any]:
    """Operators that torch's exporter does not know: ours, and transformers' for experts."""
    neutral.register_schemas()
    domain = onnxscript.values.Opset(neutral.DOMAIN, 1)

    def attend(query, key_rows, value_rows, key_cache, value_cache, length, positions, bias, scale, softcap, window):
        return domain.Attend(query, key_rows, value_rows, key_cache, value_cache, length, positions, bias,
                             scale=scale, softcap=softcap, window=window)  # fmt: skip

    def commit(buffer, rows, length, axis):
        return domain.Commit(buffer, rows, length, axis=axis)

    return {
        torch.ops.speccompile.attend.default: attend,
        torch.ops.speccompile.commit.default: commit,
        torch.ops.transformers.grouped_mm_fallback.default: _grouped_matmul,
    }


def _grouped_matmul(rows: Any, weights: Any, ends: Any) -> Any:
    """rows [M, K] sorted by expert, weights [E, K, N], ends int [E] -> [M, N]: expert e takes rows ends[e-1]:ends[e].

    One MatMul an expert, over no rows where none chose it: no weight is copied, whatever the window's width.
    """
    op = onnxscript.values.Opset("", neutral.OPSET)
    start, axis = op.Constant(value_ints=[0]), op.Constant(value_ints=[0])
    results = []
    for expert in range(weights.shape[0]):
        end = op.Cast(op.Slice(ends, op.Constant(value_ints=[expert]), op.Constant(value_ints=[expert + 1])), to=7)
        weight = op.Gather(weights, op.Constant(value_int=expert), axis=0)
        results.append(op.MatMul(op.Slice(rows, start, end, axis), weight))
        start = end
    return op.Concat(*results, axis=0)


@torch.no_grad()
def _export(graph: Graph, module: _Flat) -> Exported:
    with _without_noise():
        model = _traced(graph, module).model
    _name(model, graph)
    neutral.add_functions(model)
    common.ClearMetadataAndDocStringPass()(model)  # stack traces hold paths of the machine that traced
    model.producer_name = model.producer_version = None
    model.graph.name = graph.name
    return Exported(graph, model)


def _traced(graph: Graph, module: _Flat) -> torch.onnx.ONNXProgram:
    """Raises UnsupportedModelError when the model's code cannot be traced, or not for every width at once."""
    try:
        program = _program(graph, module)
        # A branch on a width is followed at the widths of the trace, and would then be followed at every other.
        if program._guards_code:
            raise _untraceable(graph, module, f"it branches on the width of the window ({program._guards_code[0]})")
        # onnxscript's default rewrites take most of the time and hardly ever fire; a backend's passes do what matters.
        return torch.onnx.export(
            program, dynamo=True, opset_version=neutral.OPSET, optimize=False, verbose=False,
            custom_translation_table=_translation(),
        )  # fmt: skip
    except RuntimeError as error:  # the base of all that torch's exporters raise
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        raise _untraceable(graph, module, first_line(cause)) from error


def _program(graph: Graph, module: _Flat) -> torch.export.ExportedProgram:
    io = [spec for spec in graph.inputs if spec.role != "state"]
    states = [spec for spec in graph.inputs if spec.role == "state"]
    with redirect_stderr(StringIO()) as said:  # on failure torch prints the whole graph so far
        program = torch.export.export(
            module,
            ([_example(s) for s in io], [_example(s) for s in states]),
            dynamic_shapes=([_dynamic(s) for s in io], [_dynamic(s) for s in states]),
            strict=False,
        )
    sys.stderr.write(said.getvalue())
    return program


def _untraceable(graph: Graph, module: _Flat, reason: str) -> UnsupportedModelError:
    decoder = getattr(module.module, "decoder", None)
    name = type(module.module if decoder is None else decoder.model).__name__
    return UnsupportedModelError(f"{name} cannot be compiled: its {graph.name} graph cannot be traced: {reason}")


@contextmanager
def _without_noise() -> Iterator[None]:
    """Leave out what the exporters say on every export and nobody can act on."""

    def is_news(record: logging.LogRecord) -> bool:
        return not record.msg.startswith(("torchvision is not installed", "Attribute type is ambiguous"))

    loggers = [logging.getLogger(n) for n in ("torch.onnx._internal.exporter._registration", "onnx_ir._convenience")]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)` is deprecated", FutureWarning)
        for logger in loggers:
            logger.addFilter(is_news)
        try:
            yield
        finally:
            for logger in loggers:
                logger.removeFilter(is_news)


def _name(model: ir.Model, graph: Graph) -> None:
    """Give inputs and outputs the contract's names and shapes."""
    for values, specs in ((model.graph.inputs, graph.inputs), (model.graph.outputs, graph.outputs)):
        for value, spec in zip(values, specs, strict=True):
            value.name = spec.name
            value.shape = ir.Shape(spec.shape)
