"""The build: from a plan to a proven bundle.

    checkpoint ─► probe ─► trace ─► neutral graph ─► lowered graph ─► engine ─► proof ─► bundle

Each model is loaded, traced, written and let go before the next, so that one set of weights is held at a time.
"""

import gc
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from torch import nn

from speccompile import __version__, contract
from speccompile.bundle.hashes import hash_file
from speccompile.bundle.manifest import FORMAT, TOKENIZER, EngineEntry, Manifest
from speccompile.bundle.prompts import read_prompts
from speccompile.bundle.writer import BundleWriter, check_output
from speccompile.contract import Graph
from speccompile.lower.export import Exported, export_draft, export_verify
from speccompile.lower.files import GRAPHS, engine_file, neutral_file, write_lowered, write_neutral
from speccompile.models.load import load_model
from speccompile.models.probe import probe
from speccompile.models.tokenizer import write_tokenizer
from speccompile.progress import step
from speccompile.prove import graphs as graph_proof
from speccompile.prove import reference, tokens
from speccompile.recipe import ModelPlan, Plan
from speccompile.runtime import Bundle
from speccompile.runtime.engine import Engine
from speccompile.runtime.onnxruntime import OnnxRuntimeEngine
from speccompile.runtime.text import Text
from speccompile.step.decoder import CacheShape, Decoder
from speccompile.step.draft import Drafter
from speccompile.step.draft.model import ModelDrafter
from speccompile.step.draft.prompt_lookup import PromptLookup
from speccompile.step.verify import Verify

PACKAGES = ("torch", "transformers", "onnx", "onnx-ir", "onnxscript", "onnxruntime", "tokenizers", "numpy")


def build(plan: Plan, output: Path, *, prove: bool = True, dump_graphs: Path | None = None) -> Path:
    """Build the bundle that `plan` describes into `output` and return its folder.

    Raises ProofError, and keeps nothing, when the bundle does not give the reference's tokens. prove=False leaves the
    proof out and says so in the bundle. dump_graphs: a folder for the neutral and lowered graphs.
    """
    check_output(output)
    with BundleWriter(output) as writer:
        parts = _compile(plan, writer.folder, prove)
        graphs, proofs = [part.graph for part in parts], [row for part in parts for row in part.proofs]
        for part in parts:
            proofs += _lower(plan, part, writer.folder, prove)
        if dump_graphs:
            shutil.copytree(writer.folder / GRAPHS, dump_graphs, dirs_exist_ok=True)
        if plan.target.facts.tokenizer:
            write_tokenizer(plan.target.folder, writer.folder)
        for graph in graphs:
            (writer.folder / neutral_file(graph)).unlink()
        manifest = _manifest(plan, parts, writer.folder)
        proof: dict[str, Any] = {"proven": prove}
        if prove:
            proof |= {"graphs": proofs, "engines": _prove_tokens(plan, manifest, writer.folder)}
        with step("writing the bundle"):
            writer.finish(manifest, _lock(plan), proof)
    return output


@dataclass(frozen=True)
class Part:
    """One compiled graph, what was proven of it so far, and what it gave when its neutral form was driven."""

    graph: Graph
    catch_up: int
    proofs: list[dict[str, Any]]
    script: graph_proof.Script
    outputs: graph_proof.Outputs


def _compile(plan: Plan, folder: Path, prove: bool) -> list[Part]:
    """Trace every part and compare its neutral graph with eager torch."""
    spare = max(plan.prefill_chunk, plan.drafter.tokens + 1) + plan.drafter.tokens + 1
    shape = CacheShape(plan.batch_size, plan.max_length + spare, plan.max_length)
    parts = []
    with _decoder(plan.target, "target", shape) as decoder:
        parts.append(_compile_verify(plan, decoder, folder, prove))
    if plan.drafter.model is not None:
        with _decoder(plan.drafter.model, "drafter", shape) as decoder:
            parts.append(_compile_model_draft(plan, ModelDrafter(decoder, plan.drafter.tokens), folder, prove))
    elif plan.drafter.kind == "prompt_lookup":
        assert plan.drafter.ngram is not None
        drafter = PromptLookup(plan.drafter.tokens, plan.drafter.ngram, plan.batch_size, shape.rows)
        parts.append(_compile_lookup(plan, drafter, folder, prove))
    return parts


@contextmanager
def _decoder(model: ModelPlan, role: str, shape: CacheShape) -> Iterator[Decoder]:
    with step(f"loading the {role} and probing its attention"):
        decoder = probe(load_model(model.folder, shape.max_length), shape)
    yield decoder
    del decoder
    gc.collect()


def _compile_verify(plan: Plan, decoder: Decoder, folder: Path, prove: bool) -> Part:
    script = _script(plan, max(layer.window for layer in decoder.layers))
    graph = _trace(lambda: export_verify(Verify(decoder)), folder, f"target.{plan.target.precision}.weights")
    if not prove:
        return Part(graph, 0, [], script, [])
    with step("proving verify: neutral against eager"):
        eager = graph_proof.eager_logits(decoder.model, script)
        outputs = graph_proof.drive_verify(_neutral_engine(graph, folder), script, graph)
        row = graph_proof.check_verify(outputs, script, eager, plan.target.precision)
    return Part(graph, 0, [row], script, outputs)


def _compile_model_draft(plan: Plan, drafter: ModelDrafter, folder: Path, prove: bool) -> Part:
    assert plan.drafter.model is not None
    precision = plan.drafter.model.precision
    script = _script(plan, max(layer.window for layer in drafter.decoder.layers))
    graph = _trace(lambda: export_draft(drafter, plan.batch_size), folder, f"drafter.{precision}.weights")
    if not prove:
        return Part(graph, drafter.catch_up, [], script, [])
    with step("proving draft: neutral against eager"):
        eager = graph_proof.eager_drafts(drafter.decoder.model, script, drafter.tokens, plan.max_length)
        outputs = graph_proof.drive_draft(_neutral_engine(graph, folder), script, graph)
        row = graph_proof.check_draft(outputs, script, eager, precision)
    return Part(graph, drafter.catch_up, [row], script, outputs)


def _compile_lookup(plan: Plan, drafter: Drafter, folder: Path, prove: bool) -> Part:
    script = _script(plan, 0)
    graph = _trace(lambda: export_draft(drafter, plan.batch_size), folder, "drafter.weights")
    if not prove:
        return Part(graph, 0, [], script, [])
    outputs = graph_proof.drive_draft(_neutral_engine(graph, folder), script, graph)
    expected = graph_proof.module_drafts(drafter, script)
    row = graph_proof.check_same(outputs, expected, "draft", "neutral against eager", "float32")
    return Part(graph, 0, [row], script, outputs)


def _script(plan: Plan, longest_window: int) -> graph_proof.Script:
    return graph_proof.make_script(
        plan.target.facts.vocabulary_size, plan.batch_size, plan.max_length, plan.prefill_chunk, longest_window
    )


def _trace(export: Callable[[], Exported], folder: Path, weights: str) -> Graph:
    with step("tracing"):
        exported = export()
    with step(f"writing the neutral {exported.graph.name} graph"):
        write_neutral(exported.model, exported.graph, folder, weights)
    return exported.graph


def _neutral_engine(graph: Graph, folder: Path) -> Engine:
    entry = EngineEntry("neutral", "onnxruntime", "cpu", {graph.name: neutral_file(graph)})
    return OnnxRuntimeEngine(folder, entry, [graph])


def _lower(plan: Plan, part: Part, folder: Path, prove: bool) -> list[dict[str, Any]]:
    """Lower a graph for every engine and compare it with its neutral form."""
    rows = []
    for planned in plan.engines:
        with step(f"lowering {part.graph.name} for {planned.name}"):
            write_lowered(folder / neutral_file(part.graph), part.graph, folder, planned.name, planned.backend)
        if prove:
            with step(f"proving {part.graph.name}: {planned.name} against neutral"):
                drive = graph_proof.drive_verify if part.graph.name == "verify" else graph_proof.drive_draft
                engine = OnnxRuntimeEngine(folder, _entry(planned.name, [part.graph]), [part.graph])
                outputs = drive(engine, part.script, part.graph)
                level = f"{planned.name} against neutral"
                rows.append(
                    graph_proof.check_same(outputs, part.outputs, part.graph.name, level, plan.target.precision)
                )
    return rows


def _entry(name: str, graphs: list[Graph]) -> EngineEntry:
    return EngineEntry(name, "onnxruntime", "cpu", {graph.name: engine_file(graph, name) for graph in graphs})


def _manifest(plan: Plan, parts: list[Part], folder: Path) -> Manifest:
    graphs = [part.graph for part in parts]
    drafter = plan.drafter.model
    return Manifest(
        format=FORMAT,
        contract=contract.VERSION,
        speccompile=__version__,
        name=plan.name,
        exact=plan.exact,
        decoding=plan.decoding,
        method=plan.verify_method,
        batch_size=plan.batch_size,
        max_length=plan.max_length,
        prefill_chunk=plan.prefill_chunk,
        tokens=plan.drafter.tokens,
        catch_up=max(part.catch_up for part in parts),
        vocabulary_size=plan.target.facts.vocabulary_size,
        eos_token_ids=plan.target.facts.eos_token_ids,
        tokenizer=(folder / TOKENIZER).exists(),
        precision={"target": plan.target.precision} | ({"drafter": drafter.precision} if drafter else {}),
        graphs=tuple(graphs),
        engines=tuple(_entry(engine.name, graphs) for engine in plan.engines),
        plan=plan.to_json(),
    )


def _lock(plan: Plan) -> dict[str, Any]:
    """What went in: the hash of every input file and the version of every package that took part."""
    models = {"target": plan.target} | ({"drafter": plan.drafter.model} if plan.drafter.model else {})
    inputs = {
        role: {
            "reference": model.reference,
            "commit": model.commit,
            "files": {file.as_posix(): hash_file(model.folder / file) for file in model.files},
        }
        for role, model in models.items()
    }
    return {"inputs": inputs, "versions": {"speccompile": __version__} | {name: version(name) for name in PACKAGES}}


def _prove_tokens(plan: Plan, manifest: Manifest, folder: Path) -> list[dict[str, Any]]:
    """The token level for every engine: speculative against autoregressive, both against transformers."""
    prompts = read_prompts(plan.prove.prompts) if plan.prove.prompts else None
    own = tokens.own_prompts(manifest.vocabulary_size, manifest.max_length, manifest.prefill_chunk)
    rows, cases_of = [], {}
    text = Text(folder / TOKENIZER) if manifest.tokenizer else None
    for entry in manifest.engines:
        with step(f"proving tokens on {entry.name}"):
            bundle = Bundle(manifest, OnnxRuntimeEngine(folder, entry, manifest.graphs), entry, text)
            cases = list(tokens.run(bundle, prompts or own, plan.prove.max_new_tokens))
            ties = [tie for case in cases if (tie := tokens.check_equal(bundle, case))]
            rows.append({"engine": entry.name, **tokens.summary(cases, ties)})
            cases_of[entry.name] = cases
            del bundle
            gc.collect()
    with step("proving tokens against transformers"):
        model = load_model(plan.target.folder, plan.max_length)
        for row, cases in zip(rows, cases_of.values(), strict=True):
            row["transformers"] = _against_transformers(model, cases, plan.target.precision)
    return rows


def _against_transformers(model: nn.Module, cases: list[tokens.Case], precision: str) -> dict[str, Any]:
    ties: list[dict[str, Any]] = []
    for case in cases:
        new = case.speculative.token_ids
        if new:
            logits = reference.sequence_logits(model, case.prompt_ids + new[:-1])[len(case.prompt_ids) - 1 :]
            found = reference.check_greedy(logits, new, precision, case.where, "speculative decoding")
            ties += [{"prompt": case.number, **tie.to_json()} for tie in found]
    return {"prompts": len(cases), "equal": len(cases) - len({tie["prompt"] for tie in ties}), "near_ties": ties}
