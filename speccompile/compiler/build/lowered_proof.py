"""The proof of lowered graphs: the input of an engine's builder runs in ONNX Runtime on the CPU first."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from speccompile.bundle.manifest import EngineEntry
from speccompile.bundle.sources import round_only, shares_encoder
from speccompile.compiler.build.cache_key import GraphFiles
from speccompile.compiler.build.cached_steps import CachedSteps
from speccompile.compiler.build.draft_proof import check_draft, reads_target
from speccompile.compiler.build.lowered import GRAPH_COMPONENTS, Lowered
from speccompile.compiler.build.memory import free_memory
from speccompile.compiler.build.traced_graphs import TracedGraph, neutral, neutral_engine
from speccompile.compiler.diagnose.compare import compare_graphs
from speccompile.compiler.lower.compose import STEP
from speccompile.compiler.lower.emulated_graph import stand_in
from speccompile.compiler.lower.files import neutral_file
from speccompile.compiler.lower.lowering_targets import CPU, WeightFormat
from speccompile.compiler.prove import graphs as graph_proof
from speccompile.compiler.prove.graphs import TRACED
from speccompile.compiler.prove.schedule import Schedule, overlapped
from speccompile.compiler.prove.schedule_runs import Outputs, Recording, run_alone, run_schedule
from speccompile.compiler.prove.tolerance import TOLERANCE, arithmetic_over, tolerance
from speccompile.compiler.prove.weights import check_weights
from speccompile.compiler.weights.session import LinkedEngine
from speccompile.contract import ENCODE_DRAFT_SOURCE, ENCODE_SOURCE, SOURCE_ENCODERS, Graph
from speccompile.drafters.context import DraftInputs
from speccompile.progress import LOGGER, log_step
from speccompile.runtime.devices.engine import Array


@dataclass(frozen=True)
class WeightProofInputs:
    """Inputs of the proof of a graph's weights. files: the graph as traced, and in the weight format of precision
    `word`."""

    files: GraphFiles
    word: str


@dataclass(frozen=True)
class LoweredProofInputs:
    """Inputs of the proof of a lowered graph. draft: of a graph that drafts. layers: of the deepest model: rounding
    errors grow with them. files: the graph's, and those of the neutral graphs."""

    draft: DraftInputs | None
    layers: int
    graph: Graph
    files: GraphFiles
    schedule: Schedule


@dataclass(frozen=True)
class GraphProofInputs:
    """Inputs of the proof of all lowered graphs of a round, beside the graphs: see `LoweredProofInputs`.
    quantizations: component -> how its models were quantized, for messages."""

    draft: DraftInputs | None
    layers: int
    quantizations: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class ProofEngine:
    """Lowered graphs as ONNX Runtime runs them on a CPU. `entry`: their files, and the precision that they
    represent."""

    lowered: Lowered
    entry: EngineEntry

    def open(self, folder: Path, *names: str, batch_size: int = 1) -> LinkedEngine:
        """Open an engine over the graphs of these names, and those that encode sources. batch_size: of the bundle, if
        runs may use some batch slots alone."""
        opened = {*names, *SOURCE_ENCODERS}
        files = {name: file for name, file in self.entry.files.items() if name in opened}
        graphs = tuple(graph for graph in self.entry.graphs if graph.name in opened)
        return LinkedEngine(folder, replace(self.entry, files=files, graphs=graphs), batch_size=batch_size)


def proof_engine(lowered: Lowered, folder: Path) -> ProofEngine:
    """Return the lowered graphs, or emulated ones if ONNX Runtime's CPU kernels lack a dtype."""
    pairs = [stand_in(graph, lowered.files[graph.name], folder) for graph in lowered.graphs]
    graphs, files = tuple(graph for graph, _ in pairs), {graph.name: file for graph, file in pairs}
    backend = "onnxruntime" if lowered.form is CPU else f"{lowered.form.name} on a CPU"
    entry = EngineEntry(lowered.name, backend, "cpu", files, lowered.precision.words(), graphs)
    return ProofEngine(lowered, entry)


def prove_weights(
    engines: Iterable[ProofEngine], parts: Iterable[TracedGraph], folder: Path, steps: CachedSteps
) -> list[dict[str, Any]]:
    """Compare the weights of every graph in every weight format with the model's. Raise ProofError."""
    known, rows = {part.graph.name: part.graph for part in parts}, []
    found = {(name, engine.lowered.weight_format(name)): None for engine in engines for name in known}
    for name, numbers in found:
        if not numbers.in_place:
            title = f"proving the weights of {name} in {numbers.name}"
            files = GraphFiles(folder, (neutral_file(known[name]), neutral_file(known[name], numbers)))
            inputs = WeightProofInputs(files, numbers.word)

            def check(title: str = title, name: str = name, inputs: WeightProofInputs = inputs) -> dict[str, Any]:
                with log_step(title):
                    traced, written = (inputs.files.folder / file for file in inputs.files.files)
                    return check_weights(traced, written, name, inputs.word)

            rows.append(steps.result(title, inputs, check))
    return rows


def log_requantization(quantizations: Mapping[str, tuple[str, ...]], rows: Iterable[dict[str, Any]]) -> None:
    """Log how pre-quantized weights were passed through or requantized, from the rows of `prove_weights`."""
    for row in rows:
        part = GRAPH_COMPONENTS[row["graph"]]
        methods = ", ".join(quantizations[part])
        if methods:
            LOGGER.info(
                "%s: %s: %d of %d weights are taken over in %s; the others are at most %.1f %% of the largest in their "
                "block off, all of them %.2f %% in the mean", part, methods, row["kept"], row["weights"],
                row["precision"], 100 * row["largest_error"], 100 * row["mean_error"],
            )  # fmt: skip


def prove_graphs(
    inputs: GraphProofInputs, engine: ProofEngine, parts: Iterable[TracedGraph], folder: Path, steps: CachedSteps
) -> list[dict[str, Any]]:
    """Compare every lowered graph with the neutral ones in the same weight format, over the same schedule. Raise
    ProofError.

    This bounds the error of lowering in every precision; the error of a precision shows in the tokens (`prove_tokens`).
    Graphs for the runtime's own engine run as in the runtime, and a fused step is compared with its two graphs. Graphs
    for another engine are compared with theirs window by window, each from the same state. Drafts that differ from the
    traced graph's must still be the drafter's own.
    """
    known, rows = {part.graph.name: part for part in parts}, []
    for graph in round_only(engine.entry.graphs):
        level = f"{engine.lowered.name} against neutral"

        numbers = {name: neutral_file(part.graph, engine.lowered.weight_format(name)) for name, part in known.items()}
        draft, encoders = inputs.draft, [name for name in known if name in SOURCE_ENCODERS]
        if graph.name == "verify":  # checked without the drafter
            numbers, draft = {name: numbers[name] for name in ("verify", *encoders)}, None
        lowered = (engine.entry.files[name] for name in (graph.name, *encoders))
        read = GraphFiles(folder, (*numbers.values(), *lowered))
        own = LoweredProofInputs(draft, inputs.layers, graph, read, known["verify"].script)

        def prove(own: LoweredProofInputs = own, level: str = level) -> list[dict[str, Any]]:
            with log_step(f"proving {own.graph.name}: {level}"):
                free_memory()
                return _proven(own, engine, known, folder, level)

        rows += steps.result(f"proving {graph.name}: {level}", own, prove)
    return rows


def _proven(
    inputs: LoweredProofInputs, engine: ProofEngine, known: dict[str, TracedGraph], folder: Path, level: str
) -> list[dict[str, Any]]:
    graph = inputs.graph
    if engine.lowered.form is CPU or graph.name == STEP:
        row = _drive(engine, graph, known, folder, level, inputs.layers)
    else:
        row = _compare(engine, known[graph.name], folder, level, inputs.layers)
    others, parts_of = row.pop("other_drafts", 0), known if graph.name == STEP else [graph.name]
    has_traced_weights = all(engine.lowered.weight_format(name).has_traced_weights for name in parts_of)
    if inputs.draft is not None and others and has_traced_weights:
        return [row, _check_drafts(inputs.draft, engine, graph, known, folder)]
    return [row]


def _check_drafts(
    draft: DraftInputs, engine: ProofEngine, graph: Graph, known: dict[str, TracedGraph], folder: Path
) -> dict[str, Any]:
    verify, level = known["verify"].graph, f"{engine.lowered.name} against eager"
    script, graphs, files = known["verify"].script, [graph], {graph.name: engine.entry.files[graph.name]}
    if reads_target(draft.drafter) and graph.name != STEP:  # as traced, for every format of the engine's target
        graphs, files = [verify, graph], {verify.name: neutral_file(verify), **files}
    encoders = [part.graph for name, part in known.items() if name in SOURCE_ENCODERS]  # as traced, as well
    files |= {each.name: neutral_file(each) for each in encoders}
    entry = replace(engine.entry, files=files, graphs=(*graphs, *encoders))
    outputs = run_schedule(LinkedEngine(folder, entry), script, graphs)
    free_memory()
    links: tuple[dict[str, Array], ...] = ()
    if reads_target(draft.drafter) and graph.name == STEP:  # its links are internal: take those of its two graphs
        numbers = {name: engine.lowered.weight_format(name) for name in known}
        names = {tensor.name for tensor in verify.outputs if tensor.role == "link"}
        if draft.drafter.successors:  # the engine's own arithmetic decides between equal choices
            both = run_alone(engine.open(folder, verify.name), script, engine.entry.graphs, verify.name)
        else:
            both = _round(list(known.values()), numbers, folder, overlapped(script, graphs), [])
        links = tuple({name: one[name] for name in names} for one in both if names and names <= one.keys())
    return check_draft(draft, Recording(graph, level, script, outputs, tuple(graphs), links))


def _compare(engine: ProofEngine, part: TracedGraph, folder: Path, level: str, layers: int) -> dict[str, Any]:
    numbers = engine.lowered.weight_format(part.graph.name)
    graph, reference = neutral(part.graph, numbers, folder)
    word = arithmetic_over(numbers.arithmetic, engine.lowered.graphs)  # not of a stand-in, whose caches are floats
    row = compare_graphs(
        folder / reference, folder / engine.entry.files[graph.name], graph, part.script,
        level=level, tolerance=tolerance(word, layers), exact=word == TRACED,
    )  # fmt: skip
    return row | {"precision": numbers.word, "other_drafts": row["tokens"] - row["same_tokens"]}


def _drive(
    engine: ProofEngine, graph: Graph, known: dict[str, TracedGraph], folder: Path, level: str, layers: int
) -> dict[str, Any]:
    parts = list(known.values()) if graph.name == STEP else [known[graph.name]]
    numbers = {part.graph.name: engine.lowered.weight_format(part.graph.name) for part in parts}
    running = engine.open(folder, graph.name)
    script = parts[0].script
    outputs = run_schedule(running, script, [graph])
    formats = [*numbers.values(), *_encoder_formats(engine, known, graph)]
    word = arithmetic_over(max((each.arithmetic for each in formats), key=TOLERANCE.__getitem__), [graph])
    # The links between its two graphs are internal to a step.
    links = {t.name for part in parts for t in part.graph.outputs if t.role == "link"} if graph.name == STEP else set()
    is_traced = all(each.word == TRACED for each in formats)
    expected = (
        parts[0].drive()
        if len(parts) == 1 and is_traced and word == TRACED
        else _round(parts, numbers, folder, overlapped(script, [graph]), _encoders(engine, known, folder))
    )
    expected = [{name: each for name, each in one.items() if name not in links} for one in expected]
    if word != TRACED:
        return graph_proof.check_near(outputs, expected, graph.name, level, word, layers)
    return graph_proof.check_same(outputs, expected, graph.name, level, word)


def _encoder_formats(engine: ProofEngine, known: dict[str, TracedGraph], graph: Graph) -> list[WeightFormat]:
    """Return the formats of the encoders that make what a graph of a round reads of a source."""
    own = ENCODE_SOURCE if graph.name == "verify" else ENCODE_DRAFT_SOURCE
    if own not in known:
        return []
    names = (ENCODE_SOURCE, own) if shares_encoder(known[own].graph) else (own,)
    return [engine.lowered.weight_format(name) for name in names]


def _encoders(engine: ProofEngine, known: dict[str, TracedGraph], folder: Path) -> list[tuple[Graph, str]]:
    """Return the neutral graphs that encode sources, in the engine's weight formats, with their files."""
    names = [name for name in known if name in SOURCE_ENCODERS]
    return [neutral(known[name].graph, engine.lowered.weight_format(name), folder) for name in names]


def _round(
    parts: list[TracedGraph],
    numbers: dict[str, WeightFormat],
    folder: Path,
    script: Schedule,
    encoders: list[tuple[Graph, str]],
) -> Outputs:
    """Run the neutral graphs one after the other over a schedule, in the engine's weight formats, and return their
    outputs. encoders: run before them."""
    own = [neutral(part.graph, numbers[part.graph.name], folder) for part in parts]
    engine = neutral_engine([*own, *encoders], folder)
    return run_schedule(engine, script, [part.graph for part in parts])
