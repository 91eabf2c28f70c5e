"""Neutral graphs -> the graphs of every engine. Engines that differ only in compute capability share their graphs."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from speccompile.bundle.manifest import EngineEntry
from speccompile.bundle.sources import ENCODED_COMPONENTS
from speccompile.compiler.build.cache_key import FileContents
from speccompile.compiler.build.cached_steps import CachedSteps
from speccompile.compiler.build.calibration import calibrated_ranges
from speccompile.compiler.build.memory import free_memory
from speccompile.compiler.build.traced_graphs import TracedGraph
from speccompile.compiler.lower.compose import STEP, compose_step, step_graph
from speccompile.compiler.lower.files import engine_file, neutral_file, share_weights, write_lowered, write_quantized
from speccompile.compiler.lower.lowering_targets import (
    LoweringTarget,
    WeightFormat,
    lowering_target,
    numbers_in_place,
    weight_format,
)
from speccompile.contract import ENCODE_DRAFT_SOURCE, ENCODE_SOURCE, FLOAT_CACHE, FP8, FP8_CACHE, Graph
from speccompile.plan.plan import EnginePlan, PrecisionPlan
from speccompile.progress import LOGGER, log_step

GRAPH_COMPONENTS = {"verify": "target", "draft": "drafter", **ENCODED_COMPONENTS}
"""Graph -> the component whose weight format it has."""


_STEMS = {ENCODE_SOURCE: "encoder", ENCODE_DRAFT_SOURCE: "draft_encoder"}
"""Graph -> the stem of its file of weights, where that is not its component."""
_SHARING = {ENCODE_SOURCE: "verify", ENCODE_DRAFT_SOURCE: "draft"}
"""Graph -> the graph in whose file lie the weights that both read."""


@dataclass(frozen=True)
class LowerInputs:
    """Inputs of lowering, beside the traced graphs. graphs: "separate" or "fused". shares_weights: the drafter reads
    weights of the target; has_weights: it has weights, its own or the target's. cache: dtype of the target's caches, of
    `CACHE_DTYPES`."""

    engines: tuple[EnginePlan, ...]
    graphs: str
    batch_size: int
    shares_weights: bool
    has_weights: bool
    cache: str = FLOAT_CACHE


@dataclass(frozen=True)
class LoweredGraphInputs:
    """Inputs of a lowered graph. files: the neutral graphs, whose weights are not read; form: name of the lowering
    target."""

    files: FileContents
    graph: Graph
    form: str


@dataclass(frozen=True)
class Lowered:
    """The graphs of one lowering target in one precision, with the dtypes of that precision in their contract."""

    name: str
    form: LoweringTarget
    precision: PrecisionPlan
    graphs: tuple[Graph, ...]
    shares_weights: bool
    """True if the drafter reads weights of the target."""
    in_place: bool = False
    """True if the weights stay in the checkpoint, for the proof alone."""

    @property
    def identity(self) -> tuple[LoweringTarget, PrecisionPlan]:
        """Return the key that engines with the same graphs have in common."""
        return self.form, self.precision

    @property
    def files(self) -> dict[str, str]:
        """Return graph -> its lowered ONNX file."""
        return {graph.name: engine_file(graph, self.name) for graph in self.graphs}

    def weight_format(self, graph: str) -> WeightFormat:
        if self.in_place:
            return numbers_in_place(self.form)
        return weight_format(self.form, self.precision, GRAPH_COMPONENTS[graph], shares=self.shares_weights)

    def entry(self, planned: EnginePlan) -> EngineEntry:
        """Return an engine of the bundle that opens the lowered graphs themselves."""
        return EngineEntry(
            planned.name, planned.backend, planned.provider, self.files, planned.precision.words(), self.graphs
        )


def sharing_key(planned: EnginePlan) -> tuple[LoweringTarget, PrecisionPlan]:
    """Return the key that distinguishes the graphs of engines."""
    return lowering_target(planned), planned.precision


def engines_of(lowered: Lowered, engines: Iterable[EnginePlan]) -> list[str]:
    """Return the names of the engines that have these graphs."""
    return [planned.name for planned in engines if sharing_key(planned) == lowered.identity]


def round_graphs(kind: str, parts: Iterable[TracedGraph]) -> tuple[Graph, ...]:
    """Return the graphs of a round, in order. kind: "separate" or "fused": a fused step comes with `verify`, which
    autoregressive decoding runs alone."""
    graphs = {part.graph.name: part.graph for part in parts}
    if kind == "fused":  # the plan refuses it for a target with an encoder
        return step_graph(graphs["verify"], graphs["draft"]), graphs["verify"]
    return tuple(graphs.values())


def lower_all(
    inputs: LowerInputs, parts: list[TracedGraph], folder: Path, prompts: list[list[int]], steps: CachedSteps
) -> dict[str, Lowered]:
    """Write the lowered graphs of every engine into `folder`. Return them by engine name.

    prompts: token ids for the calibration of activations, if a precision needs it.
    """
    found: dict[tuple[LoweringTarget, PrecisionPlan], Lowered] = {}
    for planned in inputs.engines:
        identity = sharing_key(planned)
        if identity not in found:
            found[identity] = _lowered(inputs, *identity, parts)
            _lower(found[identity], parts, folder, prompts, steps)
            free_memory()
    return {planned.name: found[sharing_key(planned)] for planned in inputs.engines}


def lower_traced(
    inputs: LowerInputs, lowered: Iterable[Lowered], parts: list[TracedGraph], folder: Path, steps: CachedSteps
) -> list[Lowered]:
    """Return the same lowerings over the checkpoint's own weights, for the proof alone: there, rounding cannot hide an
    error of the lowering.

    Lowerings that some engine has anyway are omitted.
    """
    known = {each.identity: each.form for each in lowered}
    traced = PrecisionPlan("float32", "float32" if inputs.has_weights else None, None)
    missing = [form for form in dict.fromkeys(known.values()) if (form, traced) not in known]
    added = [_lowered(inputs, form, traced, parts, in_place=True) for form in missing]
    for each in added:
        _lower(each, parts, folder, [], steps)
        free_memory()
    return added


def _lowered(
    inputs: LowerInputs, form: LoweringTarget, precision: PrecisionPlan, parts: Iterable[TracedGraph], *,
    in_place: bool = False,
) -> Lowered:  # fmt: skip
    numbers = {part: weight_format(form, precision, part) for part in precision.words()}
    dtypes = {part: each.compute for part, each in numbers.items()}
    if inputs.cache == FP8_CACHE:
        dtypes["target"] = FP8
    graphs = tuple(form.contract(graph, dtypes, inputs.batch_size) for graph in round_graphs(inputs.graphs, parts))
    words = [each.name.partition(".")[0] for each in numbers.values()]
    suffix = [] if set(words) == {"float32"} else words[:1] if len(set(words)) == 1 else words
    return Lowered(".".join([form.name, *suffix]), form, precision, graphs, inputs.shares_weights, in_place)


def _lower(
    lowered: Lowered, parts: list[TracedGraph], folder: Path, prompts: list[list[int]], steps: CachedSteps
) -> None:
    for part in parts:
        _write_numbers(part, lowered.weight_format(part.graph.name), folder, prompts, parts[0].graph, steps)
    by_name = {part.graph.name: part.graph for part in parts}
    sharing = _SHARING | ({"draft": "verify"} if lowered.shares_weights else {})
    for name, other in sharing.items() if not lowered.in_place else ():
        if name in by_name:  # embeddings of both sides of an encoder-decoder are often one matrix
            pair = [folder / neutral_file(by_name[each], lowered.weight_format(each)) for each in (name, other)]
            share_weights(*pair)
    for graph in lowered.graphs:
        title = f"lowering {graph.name} for {lowered.name}"

        def lower(graph: Graph = graph, title: str = title) -> dict[str, int]:
            with log_step(title):
                model = _neutral(lowered, graph, parts, folder)
                return write_lowered(model, graph, folder, lowered.name, lowered.form)

        read = [part.graph for part in parts if graph.name in (STEP, part.graph.name)]
        files = tuple(neutral_file(each, lowered.weight_format(each.name)) for each in read)
        inputs = LoweredGraphInputs(FileContents(folder, files), graph, lowered.form.name)
        fired = steps.files(title, inputs, folder, [engine_file(graph, lowered.name)], lower)
        counts = ", ".join(f"{name} {count}" for name, count in fired.items() if count)
        LOGGER.debug("%s for %s: %s", graph.name, lowered.name, counts)


def _write_numbers(
    part: TracedGraph, numbers: WeightFormat, folder: Path, prompts: list[list[int]], verify: Graph, steps: CachedSteps
) -> None:
    """Write a graph in a weight format, once per pair of graph and format."""
    path = folder / neutral_file(part.graph, numbers)
    if path.exists():
        return
    ranges = calibrated_ranges(part.graph, numbers, folder, prompts, verify, steps)
    with log_step(f"writing {part.graph.name} in {numbers.name}"):
        target = folder / neutral_file(verify)
        stem = _STEMS.get(part.graph.name, GRAPH_COMPONENTS[part.graph.name])
        report = write_quantized(part.graph, stem, numbers, folder, ranges, target, steps.write)
    if report is not None:
        for line in report.lines():
            LOGGER.info("%s in %s: %s", part.graph.name, numbers.name, line)


def _neutral(lowered: Lowered, graph: Graph, parts: list[TracedGraph], folder: Path) -> ir.Model:
    models = {
        part.graph.name: ir.load(folder / neutral_file(part.graph, lowered.weight_format(part.graph.name)))
        for part in parts
        if graph.name in (STEP, part.graph.name)
    }
    if graph.name == STEP:
        return compose_step(models["verify"], models["draft"], graph)
    return models[graph.name]
