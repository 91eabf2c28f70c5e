"""torch -> neutral ONNX: trace a module of the round, translate it, name its inputs and outputs by the contract."""

import logging
import sys
import typing
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from io import StringIO
from typing import Any

import onnx_ir as ir
import sympy
import torch
from onnx_ir.passes import common
from torch import Tensor, nn
from torch._guards import detect_fake_mode
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.fx.experimental import proxy_tensor
from torch.utils._sympy.functions import Max, Min, Mod, PythonMod

from speccompile.bundle.caches import code_bits, has_codes, with_quantized_caches
from speccompile.bundle.sources import AUDIO, SOURCE
from speccompile.compiler.checkpoints.refused_types import HINT
from speccompile.compiler.lower import neutral
from speccompile.compiler.lower.complex_views import real_axis_moves
from speccompile.compiler.lower.constant_folding import fold_unsupported
from speccompile.compiler.lower.decompose import quick_translation
from speccompile.compiler.lower.passes.head_products import head_products
from speccompile.compiler.lower.passes.left_products import left_products
from speccompile.compiler.lower.passes.store_codes import store_codes
from speccompile.compiler.lower.signatures import (
    DraftWidth,
    draft_graph,
    encoder_graph,
    quantized_rows,
    quantized_states,
    verify_graph,
)
from speccompile.compiler.lower.translations import translation
from speccompile.compiler.models.encode_source import EncodeSource, SourceInputs
from speccompile.compiler.models.load import first_line
from speccompile.compiler.step.draft import Accepted, Drafter
from speccompile.compiler.step.monkeypatch import patched_attribute
from speccompile.compiler.step.sampling import Settings
from speccompile.compiler.step.verify import RoundInputs, Verify
from speccompile.compiler.weights.graph import put_weights
from speccompile.compiler.weights.tensor import without_numbers
from speccompile.contract import ADAPTER_PREFIX, BATCH, Graph
from speccompile.contract import Tensor as Spec
from speccompile.errors import UnsupportedModelError

# Sizes for the trace. All different, so that no two dynamic widths are unified.
_TRACE_WIDTHS = {
    BATCH: 3, "window": 7, "logit_rows": 5, "catch_up": 4, "history": 11, "allowed": 6, SOURCE: 9, "media": 10,
    "adjusted": 8,
}  # fmt: skip


@dataclass(frozen=True)
class Exported:
    """A neutral graph and its contract."""

    graph: Graph
    model: ir.Model


def export_verify(
    verify: Verify, width: DraftWidth | None = None, *, is_sampling: bool = False, constraints: bool = False
) -> Exported:
    """Trace the verification of drafts of this width, by default those of a greedy chain. constraints: it has an input
    of allowed tokens."""
    graph = verify_graph(verify, width or DraftWidth(), is_sampling=is_sampling, constraints=constraints)
    return _export(graph, _Flat(verify, graph, RoundInputs), quantized_states(verify))


def export_draft(drafter: Drafter, batch: int, n_features: int = 0) -> Exported:
    """Trace the drafter."""
    graph = draft_graph(drafter, batch, n_features)
    stored = [each for each in (*drafter.states(), *drafter.target_caches()) if has_codes(each.cache)]
    return _export(
        graph, _Flat(drafter, graph, Accepted), {each.name: code_bits(each.cache, each.name) for each in stored}
    )


def export_encoder(name: str, encoder: EncodeSource) -> Exported:
    """Trace the encoder of a source as the graph of this name."""
    graph = encoder_graph(name, encoder)
    return _export(graph, _Flat(encoder, graph, SourceInputs), quantized_rows(name, encoder))


# Contract -> field, if an argument of a module has another name or its own index in a tuple.
_FIELDS = {
    "next_window": "window",
    "next_total": "n_total",
    "next_parents": "parents",
    "next_ids": "ids",
    "next_probs": "probs",
    "pairs": "catch_up",
    "draft_ids": "ids",
    "draft_probs": "probs",
    "draft_uniforms": "uniforms",
    AUDIO: SOURCE,
}


class _Flat(nn.Module):
    """The module with flat lists of inputs and outputs, in the order of the contract."""

    def __init__(self, module: nn.Module, graph: Graph, given: Callable[..., Any]) -> None:
        """given: makes the module's first argument of the inputs that are no states, by their fields' names."""
        super().__init__()
        self.module, self.given = module, given
        self.inputs = [spec.name for spec in graph.inputs if spec.role != "state"]
        self.outputs = [_FIELDS.get(spec.name, spec.name) for spec in graph.outputs if spec.role != "state"]

    def forward(self, io: list[Tensor], states: list[Tensor]) -> tuple[Tensor, ...]:
        named = dict(zip(self.inputs, io, strict=True))
        settings = {name: named.pop(name) for name in Settings._fields if name in named}
        matrices = [named.pop(name) for name in list(named) if name.startswith(ADAPTER_PREFIX)]
        fields = {_FIELDS.get(name, name): value for name, value in named.items()}
        if matrices:
            fields["matrices"] = matrices
        if settings:
            fields["settings"] = Settings(**settings)
        results = self.module(self.given(**fields), states)._asdict()
        updated = results.pop("caches", None) or results.pop("states", [])
        return (*(results[name] for name in self.outputs), *updated)


def _example(spec: Spec) -> Tensor:
    """Return values for the trace: any that are valid together; graphs must not depend on them."""
    shape = spec.concrete_shape(_TRACE_WIDTHS)
    dtype = getattr(torch, spec.dtype)
    if spec.role == "index":
        return torch.arange(shape[0])
    values = {"n_given": 3, "n_total": 5, "length": 2, "n_path": 4, "parents": 0, "draft_probs": 0.5}
    return torch.full(shape, values.get(spec.name, 1 if spec.role == "io" else 0), dtype=dtype)


def _dynamic(spec: Spec) -> dict[int, Any]:
    return {axis: torch.export.Dim.DYNAMIC for axis, size in enumerate(spec.shape) if isinstance(size, str)}


@torch.no_grad()
def _export(graph: Graph, module: _Flat, quantized: Mapping[str, int]) -> Exported:
    """Trace a module. quantized: caches that hold codes and scales -> bits of a code; the trace has them as floats."""
    with without_noise(), quick_trace(), without_numbers(module) as sources:
        model = _traced(graph, module).model
    put_weights(model, sources)
    head_products(model)
    left_products(model)
    _name(model, graph)
    neutral.add_functions(model)
    if quantized:
        store_codes(model, quantized)
        graph = with_quantized_caches(graph, quantized)
    # Every file of the graph would hold, and every reader parse, all functions. Where it calls none they stay: only in
    # a model that has some does ONNX Runtime inline operators that are functions themselves, as CastLike.
    if any(node.domain == neutral.DOMAIN for node in ir.traversal.RecursiveGraphIterator(model.graph)):
        common.RemoveUnusedFunctionsPass()(model)
    common.ClearMetadataAndDocStringPass()(model)  # stack traces hold paths of the tracing machine
    model.producer_name = model.producer_version = None
    model.graph.name = graph.name
    return Exported(graph, model)


@contextmanager
def quick_trace() -> Iterator[None]:
    """Keep torch from making, inside a `with` block, what takes time and nothing here reads."""
    with (
        # Cached fake-tensor operations are looked up by symbolic sizes, which takes longer than the operation.
        torch._dynamo.config.patch(fake_tensor_cache_enabled=False),
        # The source line of each node.
        patched_attribute(torch.fx.config, "do_not_emit_stack_traces", True),
        # A second description of each node's result, beside meta["val"].
        patched_attribute(proxy_tensor, "_extract_tensor_metadata", lambda value: None),
        # The Python code of each graph on the way: it is made when it is run.
        _use_lazy_graph_module(True),
        # An annotation, made anew for thousands of operators in each trace; that of `typing` is cached.
        patched_attribute(torch._ops, "Callable", typing.Callable),
    ):
        yield


def _traced(graph: Graph, module: _Flat) -> torch.onnx.ONNXProgram:
    """Trace a graph. Raise UnsupportedModelError if the model's code cannot be traced, or not for all widths at
    once."""
    try:
        program = _program(graph, module)
        # A branch on a width is resolved at the widths of the trace, and would then hold for every other width.
        if program._guards_code and not _holds_always(program, graph):
            raise _untraceable(graph, module, f"it branches on the width of the window ({program._guards_code[0]})")
        real_axis_moves(program)
        # onnxscript's default rewrites take most of the time and hardly ever fire; the backend's passes do the work.
        with quick_translation():
            return torch.onnx.export(
                program, dynamo=True, opset_version=neutral.OPSET, optimize=False, verbose=False,
                custom_translation_table=translation(),
            )  # fmt: skip
    except RuntimeError as error:  # the base of all errors of torch's exporters
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        raise _untraceable(graph, module, first_line(cause)) from error


def _holds_always(program: torch.export.ExportedProgram, graph: Graph) -> bool:
    """Return whether all guards of a trace hold at every width of one token or more. torch cannot tell that (4 * w +
    16) % (w + 4) is 0, as views of w + 4 tokens require, nor that min(64, 64 * w) is 64; sympy can. Nor does it know
    that the first sizes of all batched inputs are one batch."""
    fake = detect_fake_mode([node.meta.get("val") for node in program.graph.nodes])
    if fake is None:
        return False
    known = fake.shape_env.source_to_var
    rows = dict.fromkeys((known[name] for name in _row_counts(graph) if name in known), _size())
    return all(_of_any_width(guard.expr, rows) is sympy.true for guard in fake.shape_env.guards)


def _row_counts(graph: Graph) -> Iterator[str]:
    """Yield torch's names of the first sizes of batched inputs."""
    for name, specs in zip(("io", "states"), _inputs(graph), strict=True):
        yield from (f"L['{name}'][{index}].size()[0]" for index, spec in enumerate(specs) if spec.is_batched)


def _size() -> sympy.Basic:
    return 1 + sympy.Dummy(integer=True, nonnegative=True)


def _of_any_width(expression: sympy.Basic, rows: dict[sympy.Basic, sympy.Basic]) -> sympy.Basic:
    """Translate torch's guard into plain sympy, with sizes 1 + n, and batch sizes as in `rows`."""
    sizes = {size: rows.get(size) or _size() for size in expression.free_symbols}
    for ours, theirs in ((Mod, sympy.Mod), (PythonMod, sympy.Mod), (Min, sympy.Min), (Max, sympy.Max)):
        expression = expression.replace(ours, theirs)
    return expression.subs(sizes)


def _inputs(graph: Graph) -> tuple[list[Spec], list[Spec]]:
    """Return the inputs that are no states, and the states."""
    states = [spec for spec in graph.inputs if spec.role == "state"]
    return [spec for spec in graph.inputs if spec.role != "state"], states


def _program(graph: Graph, module: _Flat) -> torch.export.ExportedProgram:
    io, states = _inputs(graph)
    with redirect_stderr(StringIO()) as said:  # on failure torch prints the whole partial graph
        program = torch.export.export(
            module,
            ([_example(s) for s in io], [_example(s) for s in states]),
            dynamic_shapes=([_dynamic(s) for s in io], [_dynamic(s) for s in states]),
            strict=False,
        )
    sys.stderr.write(said.getvalue())
    fold_unsupported(program)
    return program


def _untraceable(graph: Graph, module: _Flat, reason: str) -> UnsupportedModelError:
    decoder = getattr(module.module, "decoder", None)
    name = type(module.module if decoder is None else decoder.model).__name__
    told = f"{name} cannot be compiled: its {graph.name} graph cannot be traced: {reason}"
    return UnsupportedModelError(told, hint=HINT)


@contextmanager
def without_noise() -> Iterator[None]:
    """Suppress messages that the exporters print on every export and that need no action."""

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
    """Set the contract's names and shapes of inputs and outputs, and the name of the batch size everywhere."""
    pairs = zip(model.graph.inputs, graph.inputs, strict=True)
    traced = {value.shape[0] for value, spec in pairs if spec.is_batched and value.shape is not None}
    for value in (value for node in model.graph for value in node.outputs if value.shape is not None):
        value.shape = ir.Shape([BATCH if size in traced else size for size in value.shape])
    for values, specs in ((model.graph.inputs, graph.inputs), (model.graph.outputs, graph.outputs)):
        for value, spec in zip(values, specs, strict=True):
            value.name = spec.name
            value.shape = ir.Shape(spec.shape)
