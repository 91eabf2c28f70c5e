"""One traced graph at a time: load, probe, trace, write, let go; then the first level of the proof.

A torch model lives only as long as its trace or its eager reference takes, so that a build never holds a model and an
engine's copy of it together.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from speccompile.builder.draft_proof import check_draft, reads_target
from speccompile.builder.memory import release
from speccompile.builder.modules import cache_shape, load_decoder, make_drafter, make_verify, proof_tree
from speccompile.bundle.manifest import EngineEntry
from speccompile.contract import PARTS, Graph, with_cache_dtypes
from speccompile.lower.export import Exported, export_draft, export_verify
from speccompile.lower.files import neutral_file, share_weights, write_neutral
from speccompile.lower.forms import Numbers
from speccompile.lower.signatures import DraftWidth
from speccompile.lower.stand_in import stand_in
from speccompile.models.load import load_model
from speccompile.progress import step
from speccompile.prove import graphs as graph_proof
from speccompile.prove import script as scripts
from speccompile.prove.graphs import EAGER
from speccompile.recipe import Plan
from speccompile.runtime.onnxruntime import OnnxRuntimeEngine
from speccompile.step.decoder import Decoder

VERIFY_WEIGHTS, DRAFT_WEIGHTS = "target.float32.weights", "drafter.float32.weights"

Check = Callable[[scripts.Outputs, scripts.Script], list[dict[str, Any]]]
"""What a driven graph gave -> its rows of the proof; raises ProofError."""


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
    draft = _traced_draft(plan, folder)
    release()
    verify, longest = _traced_verify(plan, draft.width if draft else DraftWidth(), folder)
    release()
    if draft and shares_weights(plan):
        share_weights(folder / neutral_file(draft.graph), folder / neutral_file(verify))
    script = scripts.make_script(
        plan.target.facts.vocabulary_size, plan.batch_size, plan.max_length, plan.prefill_chunk,
        max(longest, draft.longest_window if draft else 0), proof_tree(plan),
    )  # fmt: skip
    if not prove:
        graphs = [(verify, 0)] + ([(draft.graph, draft.catch_up)] if draft else [])
        return [Part(graph, catch_up, script, [], []) for graph, catch_up in graphs]
    parts = [_proven(verify, 0, script, folder, partial(_check_verify, plan, graph=verify))]
    if draft:
        check = partial(_check_draft, plan, folder, (verify, draft.graph))
        parts.append(_proven(draft.graph, draft.catch_up, parts[0].script, folder, check))
    return parts


def shares_weights(plan: Plan) -> bool:
    """Whether the drafter's graph may read weights that the target has too."""
    return bool(plan.drafter.layers) or plan.drafter.head is not None


class _Draft(NamedTuple):
    """What is left of a drafter when it has been traced; longest_window: of its attention, 0 for none."""

    graph: Graph
    width: DraftWidth
    catch_up: int
    longest_window: int


def _traced_draft(plan: Plan, folder: Path) -> _Draft | None:
    drafter = make_drafter(plan)
    if drafter is None:
        return None
    head = plan.drafter.head
    n_features = len(drafter.taps) * head.hidden_size if head else 0
    graph = _trace("draft", lambda: export_draft(drafter, plan.batch_size, n_features), folder)
    decoders = (module for module in drafter.modules() if isinstance(module, Decoder))
    windows = [layer.window for decoder in decoders for layer in decoder.layers]
    windows += head.layers.windows if head and head.layers else ()
    return _Draft(graph, DraftWidth.of(drafter), drafter.catch_up, max(windows, default=0))


def _traced_verify(plan: Plan, width: DraftWidth, folder: Path) -> tuple[Graph, int]:
    """The contract, and the target's longest attention window."""
    decoder = load_decoder(plan.target, "target", cache_shape(plan))
    verify = make_verify(plan, decoder)
    is_sampling = plan.decoding == "sampling"
    graph = _trace("verify", lambda: export_verify(verify, width, is_sampling=is_sampling), folder)
    return graph, max(layer.window for layer in decoder.layers)


def _proven(graph: Graph, catch_up: int, script: scripts.Script, folder: Path, check: Check) -> Part:
    """The part, its neutral graph driven over the script and compared with eager torch."""
    with step(f"proving {graph.name}: {EAGER}"):
        engine = neutral_engine([(graph, neutral_file(graph))], folder)
        if graph.name == "verify":
            script = scripts.with_rounds(engine, script, graph)
        outputs = scripts.drive(engine, script, [graph])
        del engine
        release()
        return Part(graph, catch_up, script, check(outputs, script), outputs)


def _check_verify(plan: Plan, outputs: scripts.Outputs, script: scripts.Script, graph: Graph) -> list[dict[str, Any]]:
    model = load_model(plan.target.folder, plan.max_length)
    has_tree = any(tensor.name == "nodes" for tensor in graph.outputs)
    eager = graph_proof.eager_logits(model, script)
    rows = [graph_proof.check_verify(outputs, script, eager, all_given=has_tree)]
    if plan.drafter.head is not None and plan.drafter.head.taps:
        taps = plan.drafter.head.taps
        features = [graph_proof.eager_taps(model, text[:-1], taps) for text in script.texts]
        rows.append(graph_proof.check_features(outputs, script, features))
    return [*rows, graph_proof.check_nodes(model, outputs, script)] if script.tree else rows


def _check_draft(
    plan: Plan, folder: Path, graphs: tuple[Graph, Graph], outputs: scripts.Outputs, script: scripts.Script
) -> list[dict[str, Any]]:
    if not reads_target(plan):
        return [check_draft(plan, scripts.Driven(graphs[1], EAGER, script, outputs))]
    engine = neutral_engine([(graph, neutral_file(graph)) for graph in graphs], folder)
    driven = scripts.Driven(graphs[1], EAGER, script, scripts.drive(engine, script, graphs), graphs)
    del engine
    release()
    return [check_draft(plan, driven)]


def _trace(name: str, export: Callable[[], Exported], folder: Path) -> Graph:
    with step(f"tracing {name}"):
        exported = export()
    with step(f"writing the neutral {name} graph"):
        weights = VERIFY_WEIGHTS if name == "verify" else DRAFT_WEIGHTS
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
