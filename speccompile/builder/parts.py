"""One traced graph at a time: load, probe, trace, write, let go; and the first level of the proof on the way.

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
from speccompile.contract import PARTS, Graph, with_cache_dtypes
from speccompile.lower.export import Exported, export_draft, export_verify
from speccompile.lower.files import neutral_file, write_neutral
from speccompile.lower.forms import Numbers
from speccompile.lower.stand_in import stand_in
from speccompile.models.load import load_model
from speccompile.models.probe import probe
from speccompile.progress import step
from speccompile.prove import graphs as graph_proof
from speccompile.prove import script as scripts
from speccompile.recipe import ModelPlan, Plan
from speccompile.runtime.onnxruntime import OnnxRuntimeEngine
from speccompile.step.decoder import CacheShape, Decoder
from speccompile.step.draft.model import ModelDrafter
from speccompile.step.draft.prompt_lookup import PromptLookup
from speccompile.step.verify import Verify

Check = Callable[[scripts.Outputs], dict[str, Any]]
"""What a driven graph gave -> its row of the proof; raises ProofError."""


@dataclass(frozen=True)
class Part:
    """One compiled graph, what was proven of it so far, and what it gave when its neutral form was driven."""

    graph: Graph
    catch_up: int
    script: scripts.Script
    proofs: list[dict[str, Any]]
    outputs: scripts.Outputs


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
    def trace() -> tuple[Graph, scripts.Script, Any]:
        decoder = _load(plan.target, "target", shape)
        graph = _trace("verify", lambda: export_verify(Verify(decoder)), folder, "target.float32.weights")
        script = _script(plan, decoder)
        return graph, script, graph_proof.eager_logits(decoder.model, script) if prove else None

    graph, script, eager = trace()
    check = partial(graph_proof.check_verify, script=script, eager=eager)
    return _part(graph, 0, script, folder, check if prove else None)


def _model_draft(plan: Plan, model: ModelPlan, shape: CacheShape, folder: Path, prove: bool) -> Part:
    n_drafts = plan.drafter.tokens

    def trace() -> tuple[Graph, scripts.Script, Any]:
        drafter = ModelDrafter(_load(model, "drafter", shape), n_drafts)
        graph = _trace("draft", lambda: export_draft(drafter, plan.batch_size), folder, "drafter.float32.weights")
        script, reference = _script(plan, drafter.decoder), drafter.decoder.model
        return graph, script, graph_proof.eager_drafts(reference, script, n_drafts, plan.max_length) if prove else None

    graph, script, eager = trace()
    check = partial(graph_proof.check_draft, script=script, eager=eager)
    return _part(graph, ModelDrafter.catch_up, script, folder, check if prove else None)


def _lookup(plan: Plan, ngram: int, shape: CacheShape, folder: Path, prove: bool) -> Part:
    drafter, script = PromptLookup(plan.drafter.tokens, ngram, plan.batch_size, shape.rows), _script(plan, None)
    graph = _trace("draft", lambda: export_draft(drafter, plan.batch_size), folder, "drafter.weights")

    def check(outputs: scripts.Outputs) -> dict[str, Any]:
        expected = graph_proof.module_drafts(drafter, script)
        return graph_proof.check_same(outputs, expected, "draft", "neutral against eager", "float32")

    return _part(graph, 0, script, folder, check if prove else None)


def _part(graph: Graph, catch_up: int, script: scripts.Script, folder: Path, check: Check | None) -> Part:
    """The part; with a check, its neutral graph driven over the script and compared with eager torch."""
    if check is None:
        return Part(graph, catch_up, script, [], [])
    with step(f"proving {graph.name}: neutral against eager"):
        release()
        outputs = scripts.drive(neutral_engine([(graph, neutral_file(graph))], folder), script, graph)
        return Part(graph, catch_up, script, [check(outputs)], outputs)


def _load(model: ModelPlan, role: str, shape: CacheShape) -> Decoder:
    with step(f"loading the {role} and probing its attention"):
        return probe(load_model(model.folder, shape.max_length), shape)


def _script(plan: Plan, decoder: Decoder | None) -> scripts.Script:
    window = max(layer.window for layer in decoder.layers) if decoder else 0
    return scripts.make_script(
        plan.target.facts.vocabulary_size, plan.batch_size, plan.max_length, plan.prefill_chunk, window
    )


def _trace(name: str, export: Callable[[], Exported], folder: Path, weights: str) -> Graph:
    with step(f"tracing {name}"):
        exported = export()
    with step(f"writing the neutral {name} graph"):
        write_neutral(exported.model, exported.graph, folder, weights)
    return exported.graph


def neutral(graph: Graph, numbers: Numbers, folder: Path) -> tuple[Graph, str]:
    """The contract and the file of a neutral graph in some numbers, as ONNX Runtime's CPU kernels can run it."""
    typed = with_cache_dtypes(graph, dict.fromkeys(PARTS, numbers.compute))
    return stand_in(typed, neutral_file(graph, numbers), folder)


def neutral_engine(graphs: list[tuple[Graph, str]], folder: Path) -> OnnxRuntimeEngine:
    """Neutral graphs in `folder`, each with its file."""
    files = {graph.name: file for graph, file in graphs}
    typed = tuple(graph for graph, _ in graphs)
    return OnnxRuntimeEngine(folder, EngineEntry("neutral", "onnxruntime", "cpu", files, {"target": "float32"}, typed))
