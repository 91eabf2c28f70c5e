"""The compiled graphs of a round, and the first level of the proof: traced graphs against eager torch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from speccompile.bundle.manifest import EngineEntry
from speccompile.compiler.build.cached_steps import CachedSteps, graph_hashes
from speccompile.compiler.build.draft_proof import check_draft, reads_target
from speccompile.compiler.build.memory import free_memory
from speccompile.compiler.build.modules import drafter_key, is_chain_independent, model_key, script_tree
from speccompile.compiler.build.traced import link_checkpoints, trace_draft, trace_verify
from speccompile.compiler.lower.emulated_graph import stand_in
from speccompile.compiler.lower.files import neutral_file, share_weights
from speccompile.compiler.lower.lowering_targets import WeightFormat
from speccompile.compiler.lower.signatures import DraftWidth
from speccompile.compiler.models.load import load_model
from speccompile.compiler.prove import graphs as graph_proof
from speccompile.compiler.prove import schedule as scripts
from speccompile.compiler.prove.graphs import EAGER
from speccompile.compiler.weights.session import LinkedEngine
from speccompile.contract import COMPONENTS, Graph, with_cache_dtypes
from speccompile.progress import log_step
from speccompile.recipe import Plan

Check = Callable[[scripts.Outputs, scripts.Schedule], list[dict[str, Any]]]
"""Outputs of a graph over the schedule -> its rows of the proof; raises ProofError."""


@dataclass(frozen=True)
class TracedGraph:
    """One compiled graph, and its proofs so far. drive: returns the outputs of its neutral graph over the schedule."""

    graph: Graph
    catch_up: int
    script: scripts.Schedule
    proofs: list[dict[str, Any]]
    drive: Callable[[], scripts.Outputs]


def trace_graphs(plan: Plan, folder: Path, steps: CachedSteps, *, prove: bool) -> list[TracedGraph]:
    """Trace every graph of the round into `folder`, and compare the neutral ones with eager torch.

    Raise UnsupportedModelError, CheckpointError or ProofError.
    """
    link_checkpoints(plan, folder)
    draft = trace_draft(plan, folder, steps)
    free_memory()
    tokens = plan.drafter.tokens
    verify, longest = trace_verify(plan, draft.width if draft else DraftWidth(tokens, tokens + 1), folder, steps)
    free_memory()
    if draft and shares_weights(plan):
        share_weights(folder / neutral_file(draft.graph), folder / neutral_file(verify))
    script = scripts.make_script(
        plan.target.facts.vocabulary_size, plan.batch_size, plan.max_length, plan.prefill_chunk,
        max(longest, draft.longest_window if draft else 0), script_tree(plan), plan.common_vocabulary_size,
        repeats=plan.drafter.inner is not None or plan.drafter.cascade is not None,
    )  # fmt: skip
    if not prove:
        graphs = [(verify, 0)] + ([(draft.graph, draft.catch_up)] if draft else [])
        return [TracedGraph(graph, catch_up, script, [], list) for graph, catch_up in graphs]
    proof = _Proof(plan, folder, steps)
    parts = [proof.of(verify, 0, script, partial(_check_verify, plan, graph=verify), {"verify": verify})]
    if draft:
        check = partial(_check_draft, plan, folder, (verify, draft.graph))
        read = {"verify": verify} if reads_target(plan) else {}
        parts.append(proof.of(draft.graph, draft.catch_up, parts[0].script, check, read | {"draft": draft.graph}))
    return parts


def shares_weights(plan: Plan) -> bool:
    """Return whether the drafter's graph may read weights of the target."""
    return bool(plan.drafter.layers) or plan.drafter.head is not None


@dataclass(frozen=True)
class _Proof:
    """The first level: neutral graphs run over the schedule and compared with eager torch."""

    plan: Plan
    folder: Path
    steps: CachedSteps

    def of(
        self, graph: Graph, catch_up: int, script: scripts.Schedule, check: Check, graphs: Mapping[str, Graph]
    ) -> TracedGraph:
        """Return a traced graph with its proof; the target's adds rounds to the schedule. graphs: those that `check`
        runs."""
        driven: list[scripts.Outputs] = []

        def drive(script: scripts.Schedule) -> scripts.Outputs:
            """Run the graph over the schedule, once, at the first call."""
            if not driven:
                engine = neutral_engine([(graph, neutral_file(graph))], self.folder)
                driven.append(scripts.drive(engine, script, [graph]))
                del engine
                free_memory()
            return driven[0]

        def prove() -> dict[str, Any]:
            with log_step(f"proving {graph.name}: {EAGER}"):
                whole = script
                if graph.name == "verify":
                    engine = neutral_engine([(graph, neutral_file(graph))], self.folder)
                    whole = scripts.with_rounds(engine, script, graph)
                    del engine
                return {"rounds": whole.rounds, "rows": check(drive(whole), whole)}

        key = {
            "files": graph_hashes(self.folder, *map(neutral_file, graphs.values())),
            "script": script.to_json(),
            "model": model_key(self.plan.target), "max_length": self.plan.max_length,
            "drafter": drafter_key(self.plan) if graph.name == "draft" or not is_chain_independent(self.plan) else {},
        }  # fmt: skip
        found = self.steps.result(f"proving {graph.name}: {EAGER}", key, prove)
        rounds = tuple(tuple(map(tuple, row)) for row in found["rounds"])
        whole = replace(script, rounds=rounds)
        return TracedGraph(graph, catch_up, whole, found["rows"], partial(drive, whole))


def _check_verify(plan: Plan, outputs: scripts.Outputs, script: scripts.Schedule, graph: Graph) -> list[dict[str, Any]]:
    model = load_model(plan.target.folder, plan.max_length)
    eager, limit = graph_proof.eager_logits(model, script), graph_proof.noise_of(graph)
    rows = [graph_proof.check_verify(outputs, script, eager, limit, all_given=scripts.all_given([graph]))]
    if plan.drafter.head is not None and plan.drafter.head.taps:
        taps = plan.drafter.head.taps
        features = [graph_proof.eager_taps(model, text[:-1], taps) for text in script.texts]
        rows.append(graph_proof.check_features(outputs, script, features, limit))
    return [*rows, graph_proof.check_nodes(model, outputs, script, limit)] if script.tree else rows


def _check_draft(
    plan: Plan, folder: Path, graphs: tuple[Graph, Graph], outputs: scripts.Outputs, script: scripts.Schedule
) -> list[dict[str, Any]]:
    if not reads_target(plan):
        return [check_draft(plan, scripts.Recording(graphs[1], EAGER, script, outputs))]
    engine = neutral_engine([(graph, neutral_file(graph)) for graph in graphs], folder)
    driven = scripts.Recording(graphs[1], EAGER, script, scripts.drive(engine, script, graphs), graphs)
    del engine
    free_memory()
    return [check_draft(plan, driven)]


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
