"""One compiled graph at a time: load, probe, trace, write, let go, lower; and the graph level of the proof on the way.

The torch model lives only as long as its trace and its eager reference take, so that a build never holds a model and
an engine's copy of it together.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from speccompile.builder.memory import release
from speccompile.bundle.manifest import EngineEntry
from speccompile.contract import Graph
from speccompile.lower.export import Exported, export_draft, export_verify
from speccompile.lower.files import engine_file, neutral_file, write_lowered, write_neutral
from speccompile.models.load import load_model
from speccompile.models.probe import probe
from speccompile.progress import step
from speccompile.prove import graphs as graph_proof
from speccompile.recipe import EnginePlan, ModelPlan, Plan
from speccompile.runtime.onnxruntime import OnnxRuntimeEngine
from speccompile.step.decoder import CacheShape, Decoder
from speccompile.step.draft.model import ModelDrafter
from speccompile.step.draft.prompt_lookup import PromptLookup
from speccompile.step.verify import Verify

Check = Callable[[graph_proof.Outputs], dict[str, Any]]
"""What a driven graph gave -> its row of the proof; raises ProofError."""


@dataclass(frozen=True)
class Part:
    """One compiled graph, what was proven of it so far, and what it gave when its neutral form was driven."""

    graph: Graph
    catch_up: int
    script: graph_proof.Script
    proofs: list[dict[str, Any]]
    outputs: graph_proof.Outputs


def compile_parts(plan: Plan, folder: Path, prove: bool) -> list[Part]:
    """Trace every graph of the round into `folder`, and compare the neutral ones with eager torch.

    Raises UnsupportedModelError, CheckpointError or ProofError.
    """
    spare = max(plan.prefill_chunk, plan.drafter.tokens + 1) + plan.drafter.tokens + 1
    shape = CacheShape(plan.batch_size, plan.max_length + spare, plan.max_length)
    parts = [_verify(plan, shape, folder, prove)]
    if plan.drafter.model is not None:
        parts.append(_model_draft(plan, plan.drafter.model, shape, folder, prove))
    elif plan.drafter.ngram is not None:
        parts.append(_lookup(plan, plan.drafter.ngram, shape, folder, prove))
    return parts


def _verify(plan: Plan, shape: CacheShape, folder: Path, prove: bool) -> Part:
    precision = plan.target.precision

    def trace() -> tuple[Graph, graph_proof.Script, Any]:
        decoder = _load(plan.target, "target", shape)
        graph = _trace("verify", lambda: export_verify(Verify(decoder)), folder, f"target.{precision}.weights")
        script = _script(plan, decoder)
        return graph, script, graph_proof.eager_logits(decoder.model, script) if prove else None

    graph, script, eager = trace()
    check = partial(graph_proof.check_verify, script=script, eager=eager, precision=precision)
    return _part(graph, 0, script, folder, check if prove else None)


def _model_draft(plan: Plan, model: ModelPlan, shape: CacheShape, folder: Path, prove: bool) -> Part:
    n_drafts = plan.drafter.tokens

    def trace() -> tuple[Graph, graph_proof.Script, Any]:
        drafter = ModelDrafter(_load(model, "drafter", shape), n_drafts)
        weights = f"drafter.{model.precision}.weights"
        graph = _trace("draft", lambda: export_draft(drafter, plan.batch_size), folder, weights)
        script, reference = _script(plan, drafter.decoder), drafter.decoder.model
        return graph, script, graph_proof.eager_drafts(reference, script, n_drafts, plan.max_length) if prove else None

    graph, script, eager = trace()
    check = partial(graph_proof.check_draft, script=script, eager=eager, precision=model.precision)
    return _part(graph, ModelDrafter.catch_up, script, folder, check if prove else None)


def _lookup(plan: Plan, ngram: int, shape: CacheShape, folder: Path, prove: bool) -> Part:
    drafter, script = PromptLookup(plan.drafter.tokens, ngram, plan.batch_size, shape.rows), _script(plan, None)
    graph = _trace("draft", lambda: export_draft(drafter, plan.batch_size), folder, "drafter.weights")

    def check(outputs: graph_proof.Outputs) -> dict[str, Any]:
        expected = graph_proof.module_drafts(drafter, script)
        return graph_proof.check_same(outputs, expected, "draft", "neutral against eager", "float32")

    return _part(graph, 0, script, folder, check if prove else None)


def _part(graph: Graph, catch_up: int, script: graph_proof.Script, folder: Path, check: Check | None) -> Part:
    """The part; with a check, its neutral graph driven over the script and compared with eager torch."""
    if check is None:
        return Part(graph, catch_up, script, [], [])
    with step(f"proving {graph.name}: neutral against eager"):
        release()
        neutral = EngineEntry("neutral", "onnxruntime", "cpu", {graph.name: neutral_file(graph)})
        outputs = _drive(neutral, graph, script, folder)
        return Part(graph, catch_up, script, [check(outputs)], outputs)


def _load(model: ModelPlan, role: str, shape: CacheShape) -> Decoder:
    with step(f"loading the {role} and probing its attention"):
        return probe(load_model(model.folder, shape.max_length), shape)


def _script(plan: Plan, decoder: Decoder | None) -> graph_proof.Script:
    window = max(layer.window for layer in decoder.layers) if decoder else 0
    return graph_proof.make_script(
        plan.target.facts.vocabulary_size, plan.batch_size, plan.max_length, plan.prefill_chunk, window
    )


def _trace(name: str, export: Callable[[], Exported], folder: Path, weights: str) -> Graph:
    with step(f"tracing {name}"):
        exported = export()
    with step(f"writing the neutral {name} graph"):
        write_neutral(exported.model, exported.graph, folder, weights)
    return exported.graph


def _drive(entry: EngineEntry, graph: Graph, script: graph_proof.Script, folder: Path) -> graph_proof.Outputs:
    drive = graph_proof.drive_verify if graph.name == "verify" else graph_proof.drive_draft
    return drive(OnnxRuntimeEngine(folder, entry, [graph]), script, graph)


def lower_part(plan: Plan, part: Part, folder: Path, prove: bool) -> list[dict[str, Any]]:
    """Lower a graph for every engine and compare each with the neutral form. Raises ProofError."""
    rows, graph = [], part.graph
    for planned in plan.engines:
        with step(f"lowering {graph.name} for {planned.name}"):
            write_lowered(folder / neutral_file(graph), graph, folder, planned.name, planned.backend)
        if prove:
            release()
            level = f"{planned.name} against neutral"
            with step(f"proving {graph.name}: {level}"):
                outputs = _drive(engine_entry(planned, [graph]), graph, part.script, folder)
                precision = plan.target.precision
                rows.append(graph_proof.check_same(outputs, part.outputs, graph.name, level, precision))
    return rows


def engine_entry(planned: EnginePlan, graphs: list[Graph]) -> EngineEntry:
    """An engine of the bundle, with the files of its graphs."""
    files = {graph.name: engine_file(graph, planned.name) for graph in graphs}
    return EngineEntry(planned.name, planned.backend, planned.provider, files)
