"""The proof of lowered graphs: what an engine's builder will read runs in ONNX Runtime on the CPU first."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from speccompile.builder.lowered import PARTS, Lowered
from speccompile.builder.memory import release
from speccompile.builder.parts import Part, neutral_engine, neutral_graph
from speccompile.bundle.manifest import EngineEntry
from speccompile.contract import Graph
from speccompile.diagnose.compare import compare_graphs
from speccompile.lower.compose import STEP
from speccompile.lower.files import neutral_file
from speccompile.lower.forms import CPU, FLOATS
from speccompile.lower.stand_in import write_stand_in
from speccompile.progress import step
from speccompile.prove import graphs as graph_proof
from speccompile.prove.noise import LOSS
from speccompile.prove.script import Outputs, Script, drive, drive_round
from speccompile.runtime.onnxruntime import OnnxRuntimeEngine


@dataclass(frozen=True)
class ProofEngine:
    """Lowered graphs as ONNX Runtime runs them on a CPU; `precision`: part -> word, as in the engine they stand for."""

    lowered: Lowered
    entry: EngineEntry

    def open(self, folder: Path, *names: str) -> OnnxRuntimeEngine:
        """An engine over the graphs of these names."""
        files = {name: self.entry.files[name] for name in names}
        graphs = tuple(graph for graph in self.entry.graphs if graph.name in names)
        return OnnxRuntimeEngine(folder, replace(self.entry, files=files, graphs=graphs))


def proof_engine(lowered: Lowered, folder: Path) -> ProofEngine:
    """The lowered graphs, or what computes the same where ONNX Runtime's CPU kernels lack a dtype."""
    files, graphs = dict(lowered.files), list(lowered.graphs)
    for index, graph in enumerate(lowered.graphs):
        if (stand_in := write_stand_in(graph, folder, lowered.name)) is not None:
            graphs[index], files[graph.name] = stand_in
    words = lowered.precision.words()
    return ProofEngine(lowered, EngineEntry(lowered.name, "onnxruntime", "cpu", files, words, tuple(graphs)))


def prove_graphs(engine: ProofEngine, parts: Iterable[Part], folder: Path) -> list[dict[str, Any]]:
    """Compare every lowered graph with the neutral ones over the same script. Raises ProofError.

    Graphs for the runtime's own engine are driven as it drives them, and a fused step against the graphs that it was
    made of. Graphs that another engine will run are compared with theirs window by window, each from the same state.
    """
    known, rows = {part.graph.name: part for part in parts}, []
    for graph in engine.entry.graphs:
        level = f"{engine.lowered.name} against neutral"
        with step(f"proving {graph.name}: {level}"):
            release()
            if engine.lowered.form is CPU or graph.name == STEP:
                rows.append(_drive(engine, graph, known, folder, level))
            else:
                rows.append(_compare(engine, known[graph.name], folder, level))
    return rows


def _drive(engine: ProofEngine, graph: Graph, known: dict[str, Part], folder: Path, level: str) -> dict[str, Any]:
    names = tuple(known) if graph.name == STEP else (graph.name,)
    script = known[names[0]].script
    expected = _reference(engine.lowered, [known[name] for name in names], script, folder)
    return _check(engine.lowered, graph, drive(engine.open(folder, graph.name), script, graph), expected, level)


def _compare(engine: ProofEngine, part: Part, folder: Path, level: str) -> dict[str, Any]:
    name = part.graph.name
    numbers = engine.lowered.numbers(name)
    same_weights = numbers if numbers.word not in FLOATS else None
    files = folder / neutral_file(part.graph, same_weights), folder / engine.entry.files[name]
    row = compare_graphs(
        *files, neutral_graph(part.graph, same_weights), part.script,
        level=level, tolerance=LOSS[numbers.word], exact=numbers.word == "float32",
    )  # fmt: skip
    return row | {"precision": numbers.word}


def _reference(lowered: Lowered, parts: list[Part], script: Script, folder: Path) -> Outputs:
    """What the neutral graphs give: as traced, or in the engine's numbers where its weights are quantized.

    Quantized weights are another model's: what they cost is counted in tokens, what lowering them costs is bounded.
    """
    numbers = {part.graph.name: lowered.numbers(part.graph.name) for part in parts}
    quantized = {name: each for name, each in numbers.items() if each.word not in FLOATS}
    if not quantized and len(parts) == 1:
        return parts[0].outputs
    graphs = [part.graph for part in parts]
    engine = neutral_engine(graphs, folder, quantized)
    return drive(engine, script, graphs[0]) if len(graphs) == 1 else drive_round(engine, script, graphs)


def _check(lowered: Lowered, graph: Graph, outputs: Outputs, expected: Outputs, level: str) -> dict[str, Any]:
    words = lowered.precision.words()
    parts = words if graph.name == STEP else [PARTS[graph.name]]
    loosest = max((words.get(part, "float32") for part in parts), key=LOSS.__getitem__)
    check = graph_proof.check_same if loosest == "float32" else graph_proof.check_near
    return check(outputs, expected, graph.name, level, loosest)
