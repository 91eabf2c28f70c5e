"""The TensorRT engines of a build: built here, or deferred to the device with all inputs of the builder."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from speccompile.bundle.manifest import EngineEntry, TensorRTBuild
from speccompile.bundle.media import ENCODE_IMAGE
from speccompile.compiler.build.encoder_engine import TENSORRT_FILE, EncoderEngine
from speccompile.compiler.build.lowered import Lowered
from speccompile.compiler.diagnose.capability import check_capability, raise_unsupported
from speccompile.compiler.diagnose.reduce import reduce_failure
from speccompile.compiler.engines import (
    Limits,
    Settings,
    build_or_load,
    check_limits,
    make_settings,
    plan_file,
    store_weights_once,
)
from speccompile.compiler.engines.flavour import check_buildable, find_gpu, reason_to_defer
from speccompile.compiler.engines.memory_estimate import COEFFICIENTS, BuilderMemory
from speccompile.errors import EngineError, SpeccompileError
from speccompile.plan.plan import EnginePlan
from speccompile.progress import LOGGER

BACKENDS = ("tensorrt_rtx", "tensorrt")


@dataclass(frozen=True)
class EngineInputs:
    """Inputs of an engine's build, beside its graphs. graph_bytes: of the weights of its largest graph, 0 if
    no TensorRT builder reads it; tokens: drafts of a round; prefill_chunk, max_length: tokens."""

    engine: EnginePlan
    graph_bytes: float
    tokens: int
    prefill_chunk: int
    max_length: int


@dataclass
class BuildResult:
    """The engines of a bundle, in the order of the recipe, and those that could not be built."""

    entries: list[EngineEntry] = field(default_factory=list)
    failures: dict[str, EngineError] = field(default_factory=dict)


def check_builders(engines: Iterable[EngineInputs]) -> dict[str, str]:
    """Return engine name -> the reason why its build is deferred to the device. Raise EngineError for an engine that
    cannot be deferred, and UsageError for limits of the builder or the cache that are no numbers.

    TensorRT builds only for the GPU of this machine, so without one its engines are deferred. TensorRT-RTX needs none.
    An engine whose builder cannot stay below its memory limit is refused before any work.
    """
    built = [inputs for inputs in engines if inputs.engine.backend in BACKENDS]
    if built:
        check_limits()
    deferred = {}
    for inputs in built:
        planned = inputs.engine
        if planned.defer:
            deferred[planned.name] = "the recipe says so"
        elif planned.backend == "tensorrt_rtx":
            check_buildable(planned.backend)
        elif reason := _why_not_here(planned):
            deferred[planned.name] = reason
        if planned.name not in deferred:
            _check_memory(inputs, Limits())
    return deferred


def longest_text(engines: Iterable[EngineInputs]) -> int | None:
    """Return the tokens of the longest text of TensorRT's engines; None if there are none."""
    return next((inputs.max_length for inputs in engines if inputs.engine.backend in BACKENDS), None)


def _check_memory(inputs: EngineInputs, limits: Limits) -> None:
    planned, demand = inputs.engine, BuilderMemory(inputs.graph_bytes)
    try:
        demand.check(planned.backend, limits)
    except EngineError as error:
        raise EngineError(f"engine {planned.name}: {error}", hint=error.hint) from error
    if planned.backend == COEFFICIENTS and demand.usual > limits.memory:
        LOGGER.warning("note: engine %s may not be built: %s", planned.name, demand.describe(limits))


def _why_not_here(planned: EnginePlan) -> str:
    """Return the reason why TensorRT cannot build this engine on this machine; "" if it can."""
    try:
        check_buildable(planned.backend)
    except EngineError as error:
        return str(error)
    return reason_to_defer(find_gpu(), planned.compute_capability)


def build_engines(
    engines: Iterable[EngineInputs],
    lowered: dict[str, Lowered],
    deferred: dict[str, str],
    folder: Path,
    reduce_into: Path | None,
    catch_up: int,
    encoder: EncoderEngine | None = None,
) -> BuildResult:
    """Build every engine; skip those that TensorRT refuses.

    catch_up: width of the drafter's catch-up when decoding, for which engines are optimized. reduce_into: a folder for
    the smallest graph that fails in the same way, one for each refused engine. encoder: of a target that sees pictures.
    """
    built, limits = BuildResult(), Limits()
    for inputs in engines:
        planned = inputs.engine
        graphs = lowered[planned.name]
        if planned.backend not in BACKENDS:
            built.entries.append(graphs.entry(planned))
            continue
        settings, entry = _settings(inputs, graphs, catch_up), graphs.entry(planned)
        if encoder is not None:
            settings[ENCODE_IMAGE] = encoder.settings(planned)
            files = entry.files | {ENCODE_IMAGE: TENSORRT_FILE}
            entry = replace(entry, graphs=(*entry.graphs, encoder.graph), files=files)
        if reason := deferred.get(planned.name, ""):
            LOGGER.warning("engine %s is deferred to `speccompile finish`: %s", planned.name, reason)
            built.entries.append(_entry(planned, entry, settings, {}, reason))
            continue
        try:
            reports = _build_graphs(planned, entry, settings, folder, reduce_into, limits)
        except EngineError as error:
            built.failures[planned.name] = error
        else:
            built.entries.append(store_weights_once(_entry(planned, entry, settings, reports, ""), folder))
    return built


def _build_graphs(
    planned: EnginePlan,
    entry: EngineEntry,
    settings: dict[str, Settings],
    folder: Path,
    reduce_into: Path | None,
    limits: Limits,
) -> dict[str, Any]:
    """Build every graph of an engine. Return graph -> the builder's report. Raise EngineError for the first that
    TensorRT refuses, once it has been reduced."""
    reports: dict[str, Any] = {}
    for graph in entry.graphs:
        source = folder / entry.files[graph.name]
        try:
            _lint(source, graph.name, planned)
            output = folder / plan_file(entry.files[graph.name], graph.name, planned.name)
            reports[graph.name] = build_or_load(source, graph, settings[graph.name], output, limits=limits)
        except EngineError:
            if reduce_into is not None:
                _reduce(source, settings[graph.name], reduce_into / f"{planned.name}.{graph.name}", limits)
            raise
    return reports


def _lint(source: Path, graph: str, planned: EnginePlan) -> None:
    """Name every node that TensorRT's parser refuses: the builder itself would stop at the first."""
    found = check_capability(source, planned.backend)
    if found.findings:
        raise_unsupported(found.findings, graph, planned.name)
    if found.not_checked:
        LOGGER.warning("note: the nodes of %s were not checked before the build: %s", graph, found.not_checked)


def _reduce(source: Path, settings: Settings, output: Path, limits: Limits) -> None:
    """Reduce a refused graph. A failed reduction must not hide the reason of the refusal."""
    try:
        LOGGER.warning("the smallest graph that fails is in %s", reduce_failure(source, settings, output, limits))
    except SpeccompileError as error:
        LOGGER.warning("%s could not be reduced: %s", source.name, error)


def _settings(inputs: EngineInputs, lowered: Lowered, catch_up: int) -> dict[str, Settings]:
    planned = inputs.engine
    return {
        graph.name: make_settings(
            graph, backend=planned.backend, compute_capability=planned.compute_capability,
            precision=planned.precision.words(), tokens=inputs.tokens, catch_up=catch_up,
            prefill_chunk=inputs.prefill_chunk, max_length=inputs.max_length,
        )
        for graph in lowered.graphs
    }  # fmt: skip


def _entry(
    planned: EnginePlan, lowered: EngineEntry, settings: dict[str, Settings], reports: dict[str, Any], reason: str
) -> EngineEntry:
    """Return the entry of an engine that is built on its device. lowered: the one that would open the lowered graphs
    themselves. reason: why it is built there."""
    build = TensorRTBuild(
        deferred=reason,
        sources=lowered.files if reason else {},
        settings={name: each.to_json() for name, each in settings.items()},
        reports=reports,
    )
    sources = lowered.files
    files = {} if reason else {graph: plan_file(source, graph, planned.name) for graph, source in sources.items()}
    return replace(lowered, files=files, compute_capability=planned.compute_capability, build=build)


def combined_error(failures: dict[str, EngineError], kept: list[EngineEntry], output: Path) -> EngineError:
    """Return one error for all engines that could not be built."""
    lines = [f"engine {name}: {error}" for name, error in failures.items()]
    hints = dict.fromkeys(error.hint for error in failures.values() if error.hint)
    names = ", ".join(entry.name for entry in kept)
    what = f"the others ({names}) are in {output}" if kept else "no bundle was written"
    return EngineError(
        f"{len(failures)} of {len(failures) + len(kept)} engines could not be built; {what}\n" + "\n".join(lines),
        hint="; ".join(hints) or None,
    )
