"""The distribution level of a build's proof: a small model with the recipe's drafter and rule, and the recipe's own."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from speccompile.bundle.manifest import Manifest
from speccompile.compiler.build.cached_steps import CachedSteps, graph_hashes
from speccompile.compiler.build.lowered import lower_all, sharing_key
from speccompile.compiler.build.lowered_proof import ProofEngine, proof_engine
from speccompile.compiler.build.memory import free_memory
from speccompile.compiler.build.metadata import make_manifest
from speccompile.compiler.build.modules import drafter_key, model_key
from speccompile.compiler.build.proposals import proof_proposer
from speccompile.compiler.build.tiny_model import tiny_plan
from speccompile.compiler.build.traced_graphs import trace_graphs
from speccompile.compiler.models.load import load_model
from speccompile.compiler.prove import distribution
from speccompile.compiler.prove.distribution import MORE_SETTINGS, SETTINGS, Request, sample_count
from speccompile.compiler.prove.processors import eager_reference
from speccompile.compiler.prove.tokens import engine_reference
from speccompile.progress import log_step
from speccompile.recipe import Plan
from speccompile.runtime import Bundle
from speccompile.runtime.devices.onnxruntime import OnnxRuntimeEngine

SMALL_SAMPLES = 3000
"""Number of samples for each of the settings: enough for every mistake that the test suite tries."""

_OTHERS = 4  # divisor of the samples of all engines after the first


def prove_distributions(
    plan: Plan,
    manifest: Manifest,
    engines: Sequence[ProofEngine],
    folder: Path,
    prompts: Sequence[list[int]],
    steps: CachedSteps,
) -> list[dict[str, Any]]:
    """Prove the distributions that all bundles sample, against the target's own probabilities. Return rows of the
    proof, none for greedy decoding.

    engines: the recipe's lowered graphs in `folder`. Raise ProofError; see `prove.distribution`.
    """
    if plan.decoding != "sampling":
        return []
    files = [file for each in engines for file in each.entry.files.values()]
    planned = {name: value for name, value in plan.to_json().items() if name not in ("name", "prove")}
    key = {"files": graph_hashes(folder, *files), "prompt": prompts[0], "plan": planned}
    key |= {"model": model_key(plan.target), "drafter": drafter_key(plan)}
    return steps.result("proving distributions", key, lambda: _prove_all(plan, manifest, engines, folder, prompts))


def _prove_all(
    plan: Plan, manifest: Manifest, engines: Sequence[ProofEngine], folder: Path, prompts: Sequence[list[int]]
) -> list[dict[str, Any]]:
    rows = [{"model": "small", "engines": []} | row for row in _prove_small(plan)]
    count = sample_count(plan.target.facts.weight_bytes)
    for number, engine in enumerate(engines):
        stands_for = [each.name for each in plan.engines if sharing_key(each) == engine.lowered.identity]
        request = Request(SETTINGS, max(100, count // _OTHERS) if number else count)
        with log_step(
            f"proving distributions on {engine.lowered.name}: {request.count} samples at {len(SETTINGS)} settings"
        ):
            found = _prove(plan, manifest, engine, folder, prompts[0], request)
        rows += [{"model": plan.name, "engines": stands_for} | row for row in found]
    return rows


def _prove_small(plan: Plan) -> list[dict[str, Any]]:
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with log_step("compiling a small model with the recipe's drafter and rule"):
            small = tiny_plan(plan, folder)
            parts = trace_graphs(small, folder, CachedSteps(), prove=False)
            lowered = lower_all(small, parts, folder, [], CachedSteps())["small"]
            manifest = make_manifest(small, parts, folder)
        engine = proof_engine(lowered, folder)
        request = Request(MORE_SETTINGS, SMALL_SAMPLES, 2 + manifest.depth)
        with log_step(
            f"proving distributions on the small model: {request.count} samples at {len(MORE_SETTINGS)} settings"
        ):
            return _prove(small, manifest, engine, folder, list(range(8)), request)


def _prove(
    plan: Plan,
    manifest: Manifest,
    engine: ProofEngine,
    folder: Path,
    prompt: list[int],
    request: Request,
    threads: int | None = None,
) -> list[dict[str, Any]]:
    """Compare samples with transformers in float32. Other precisions have other weights: compare with the engine's
    logits."""
    proposer = proof_proposer(folder, manifest)
    opened = OnnxRuntimeEngine(folder, engine.entry, threads, batch_size=manifest.batch_size)
    bundle = Bundle(manifest, opened, engine.entry, None, None, proposer)
    drawn = distribution.draw_all(bundle, distribution.make_prompt(bundle, prompt), request)
    if engine.entry.precision["target"] != "float32":
        return distribution.check(manifest, drawn, engine_reference(bundle))
    del bundle  # before its model is loaded again
    free_memory()
    return distribution.check(manifest, drawn, eager_reference(load_model(plan.target.folder, plan.max_length)))
