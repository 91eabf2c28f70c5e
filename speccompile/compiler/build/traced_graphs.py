"""The compiled graphs of a round, and the first level of the proof: traced graphs against eager torch."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from speccompile.bundle.manifest import EngineEntry
from speccompile.compiler.build.cache_key import GraphFiles
from speccompile.compiler.build.cached_steps import CachedSteps
from speccompile.compiler.build.draft_proof import check_draft, reads_target
from speccompile.compiler.build.memory import free_memory
from speccompile.compiler.build.modules import VerifyInputs
from speccompile.compiler.build.shared_encoder import with_shared_encoder
from speccompile.compiler.build.traced import (
    SourceTraceInputs,
    link_checkpoints,
    trace_draft,
    trace_encoder,
    trace_verify,
)
from speccompile.compiler.lower.emulated_graph import stand_in
from speccompile.compiler.lower.files import neutral_file, share_weights
from speccompile.compiler.lower.lowering_targets import WeightFormat
from speccompile.compiler.models.eager import round_caches
from speccompile.compiler.models.load import ModelFiles, load_model
from speccompile.compiler.models.sourced import read_source
from speccompile.compiler.prove import graphs as graph_proof
from speccompile.compiler.prove.graph_traits import all_given
from speccompile.compiler.prove.graphs import EAGER
from speccompile.compiler.prove.schedule import Schedule, make_script
from speccompile.compiler.prove.schedule_runs import (
    Outputs,
    Recording,
    run_rounds,
    run_schedule,
    run_text,
    with_rounds,
)
from speccompile.compiler.prove.source_feeds import feature_shape, make_sources
from speccompile.compiler.step.media_rows import padding
from speccompile.compiler.weights.session import LinkedEngine
from speccompile.contract import COMPONENTS, ENCODE_DRAFT_SOURCE, ENCODE_SOURCE, Graph, with_cache_dtypes
from speccompile.drafters import DRAFTING_METHODS
from speccompile.drafters.context import DraftInputs
from speccompile.drafters.method import NOTHING
from speccompile.plan.head import HeadPlan
from speccompile.plan.plan import DrafterPlan
from speccompile.progress import log_step
from speccompile.tree import Tree


@dataclass(frozen=True)
class TraceInputs:
    """Inputs of the graphs of a round, and of the schedule of their proof.

    draft: None if no graph drafts. Of the schedule, tree: of its drafts; vocabulary_size: number of tokens that all
    models know; prefill_chunk: tokens; repeats: see `make_script`.
    """

    verify: VerifyInputs
    draft: DraftInputs | None
    tree: Tree | None
    vocabulary_size: int
    prefill_chunk: int
    repeats: int

    @property
    def encoders(self) -> dict[str, SourceTraceInputs]:
        """Inputs of the graphs that encode sources, by name: the target's, and that of a drafter's own encoder."""
        if not self.verify.shape.source:
            return {}
        found = {ENCODE_SOURCE: SourceTraceInputs(self.verify.target, self.verify.shape)}
        if self.draft is not None and self.draft.models:
            found[ENCODE_DRAFT_SOURCE] = SourceTraceInputs(self.draft.models[0], self.draft.shape)
        return found

    @property
    def models(self) -> Iterator[ModelFiles | HeadPlan]:
        """Yield all models whose weights the graphs read."""
        yield self.verify.target
        if self.draft is not None:
            yield from self.draft.models
            if self.draft.drafter.head is not None:
                yield self.draft.drafter.head


@dataclass(frozen=True)
class EagerProofInputs:
    """Inputs of the comparison of a traced graph with eager torch. of: inputs of its trace. graphs: those that run, the
    compared one last; files: theirs."""

    of: VerifyInputs | DraftInputs
    graphs: tuple[Graph, ...]
    files: GraphFiles
    schedule: Schedule


@dataclass(frozen=True)
class TracedGraph:
    """One compiled graph, and its proofs so far. drive: returns the outputs of its neutral graph over the schedule.
    rings: see `Manifest`."""

    graph: Graph
    catch_up: int
    script: Schedule
    proofs: list[dict[str, Any]]
    drive: Callable[[], Outputs]
    rings: dict[str, int] = field(default_factory=dict)


LONG_WINDOW, LONG_RING = 512, 1024
"""Longest window, and last row of a ring, beyond which the texts of the proof go, in tokens."""
_SEAM = 24
"""Tokens behind the end of a ring, which lie in its first rows."""


def trace_graphs(inputs: TraceInputs, folder: Path, steps: CachedSteps, *, prove: bool) -> list[TracedGraph]:
    """Trace every graph of the round into `folder`, and compare the neutral ones with eager torch.

    Raise UnsupportedModelError, CheckpointError or ProofError.
    """
    link_checkpoints(inputs.models, folder)
    sources = with_shared_encoder(inputs.encoders, steps)
    encoders = {name: trace_encoder(name, of, folder, steps) for name, of in sources.items()}
    free_memory()
    draft = trace_draft(inputs.draft, folder, steps) if inputs.draft else None
    free_memory()
    verified = inputs.verify.after(draft.width if draft else None)
    verify, longest, rings = trace_verify(verified, folder, steps)
    free_memory()
    if draft and inputs.draft and shares_weights(inputs.draft.drafter):
        share_weights(folder / neutral_file(draft.graph), folder / neutral_file(verify))
    shape, windows = inputs.verify.shape, [longest, draft.longest_window if draft else 0]
    ends = [int(each.shape[2]) + _SEAM for each in verify.inputs if each.buffer in rings]
    script = make_script(
        inputs.verify.target.vocabulary_size, shape.batch_size, shape.max_length, inputs.prefill_chunk,
        max([0, *(n for n in windows if n <= LONG_WINDOW), *(n for n in ends if n <= LONG_RING)]), inputs.tree,
        inputs.vocabulary_size, repeats=inputs.repeats,
    )  # fmt: skip
    if shape.source:
        size = inputs.verify.target.vocabulary_size
        texts = tuple(make_sources(size, shape.batch_size, shape.source))
        script = replace(script, sources=texts, features=feature_shape(encoders[ENCODE_SOURCE]))
    if not prove:
        graphs = [(verify, 0, rings)] + ([(draft.graph, draft.catch_up, {})] if draft else [])
        graphs += [(graph, 0, {}) for graph in encoders.values()]
        return [TracedGraph(graph, catch_up, script, [], list, its) for graph, catch_up, its in graphs]
    parts = [replace(_proven(verified, (verify,), 0, script, folder, steps, encoders), rings=rings)]
    if draft and inputs.draft:
        read = (verify, draft.graph) if reads_target(inputs.draft.drafter) else (draft.graph,)
        parts.append(_proven(inputs.draft, read, draft.catch_up, parts[0].script, folder, steps, encoders))
    script = parts[0].script
    return [*parts, *(TracedGraph(graph, 0, script, [], list) for graph in encoders.values())]


def shares_weights(drafter: DrafterPlan) -> bool:
    """Return whether the drafter's graph may read weights of the target."""
    return bool(drafter.layers) or drafter.head is not None


def _proven(
    of: VerifyInputs | DraftInputs, graphs: tuple[Graph, ...], catch_up: int, script: Schedule, folder: Path,
    steps: CachedSteps, encoders: Mapping[str, Graph],
) -> TracedGraph:  # fmt: skip
    """Return the last of the graphs with its proof; the target's adds rounds to the schedule. encoders: of sources,
    which run before it."""
    graph, run = graphs[-1], _NeutralRun(graphs[-1], folder, encoders)
    files = GraphFiles(folder, tuple(map(neutral_file, (*graphs, *encoders.values()))))
    inputs = EagerProofInputs(of, graphs, files, script)

    def prove() -> dict[str, Any]:
        with log_step(f"proving {graph.name}: {EAGER}"):
            if isinstance(of, DraftInputs):
                return {"rounds": script.rounds, "rows": [_check_draft(of, inputs, run.over, encoders)]}
            whole = run.adding_rounds(script)
            return {"rounds": whole.rounds, "rows": _check_verify(of, graph, run.over(whole), whole)}

    found = steps.result(f"proving {graph.name}: {EAGER}", inputs, prove)
    rounds = tuple(tuple(map(tuple, row)) for row in found["rounds"])
    whole = replace(script, rounds=rounds)
    return TracedGraph(graph, catch_up, whole, found["rows"], partial(run.over, whole))


class _NeutralRun:
    """A neutral graph in `folder` that runs over the schedule once. encoders: of sources, which run before it."""

    def __init__(self, graph: Graph, folder: Path, encoders: Mapping[str, Graph]) -> None:
        self._graph, self._folder, self._encoders = graph, folder, encoders
        self._outputs: Outputs | None = None

    def over(self, script: Schedule) -> Outputs:
        """Return its outputs over the schedule, which is the same in every call."""
        if self._outputs is None:
            self._outputs = run_schedule(self._engine(), script, [self._graph])
            free_memory()
        return self._outputs

    def adding_rounds(self, script: Schedule) -> Schedule:
        """Run the target's graph over the text, then over drafts that are chosen by what it says there. Return the
        schedule with these."""
        engine = self._engine()
        text = run_text(engine, script, [self._graph])
        whole = with_rounds(engine, script, self._graph)
        self._outputs = text + run_rounds(engine, whole, [self._graph])
        del engine
        free_memory()
        return whole

    def _engine(self) -> LinkedEngine:
        graphs = (self._graph, *self._encoders.values())
        return neutral_engine([(each, neutral_file(each)) for each in graphs], self._folder)


def _check_verify(inputs: VerifyInputs, graph: Graph, outputs: Outputs, script: Schedule) -> list[dict[str, Any]]:
    model = round_caches(load_model(inputs.target.folder, inputs.shape.max_length), inputs.shape.dtype)
    model = padding(model, inputs.media.padded if inputs.media else ())
    eager, limit = graph_proof.eager_logits(model, script), graph_proof.noise_of(graph)
    rows = [graph_proof.check_verify(outputs, script, eager, limit, all_given=all_given([graph]))]
    if inputs.taps:
        features = []
        for row, text in enumerate(script.texts):
            read_source(model, script.source(row))
            features.append(graph_proof.eager_taps(model, text[:-1], inputs.taps))
        rows.append(graph_proof.check_features(outputs, script, features, limit))
    return [*rows, graph_proof.check_nodes(model, outputs, script, limit)] if script.tree else rows


def _check_draft(
    draft: DraftInputs, inputs: EagerProofInputs, drive: Callable[[Schedule], Outputs],
    encoders: Mapping[str, Graph],
) -> dict[str, Any]:  # fmt: skip
    graphs, script = inputs.graphs, inputs.schedule
    if len(graphs) == 1:
        return check_draft(draft, Recording(graphs[0], EAGER, script, drive(script)))
    run = [*graphs, *encoders.values()]
    engine = neutral_engine([(graph, neutral_file(graph)) for graph in run], inputs.files.folder)
    if (
        DRAFTING_METHODS[draft.drafter.kind].weights == NOTHING
    ):  # the target's own choice hardly ever stands in the text
        script = replace(script, told=True)
    driven = Recording(graphs[-1], EAGER, script, run_schedule(engine, script, graphs), graphs)
    del engine
    free_memory()
    return check_draft(draft, driven)


def neutral(graph: Graph, numbers: WeightFormat, folder: Path) -> tuple[Graph, str]:
    """Return the contract and the file of a neutral graph in a weight format, as ONNX Runtime's CPU kernels can run
    it."""
    typed = with_cache_dtypes(graph, dict.fromkeys(COMPONENTS, numbers.compute))
    return stand_in(typed, neutral_file(graph, numbers), folder)


def neutral_engine(graphs: list[tuple[Graph, str]], folder: Path) -> LinkedEngine:
    """Return an engine over neutral graphs in `folder`, each with its file."""
    files = {graph.name: file for graph, file in graphs}
    typed = tuple(graph for graph, _ in graphs)
    return LinkedEngine(folder, EngineEntry("neutral", "onnxruntime", "cpu", files, {"target": "float32"}, typed))
