"""The distribution level of a build's proof: a small model with the recipe's drafter and rule, and the recipe's own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from speccompile.bundle.caches import cache_dtype
from speccompile.bundle.manifest import Manifest
from speccompile.compiler.build.cache_key import GraphFiles
from speccompile.compiler.build.cached_steps import CachedSteps
from speccompile.compiler.build.lowered import engines_of, lower_all
from speccompile.compiler.build.lowered_proof import ProofEngine, proof_engine
from speccompile.compiler.build.memory import free_memory
from speccompile.compiler.build.metadata import Description, make_manifest
from speccompile.compiler.build.proposals import proof_proposer
from speccompile.compiler.build.round_plan import RoundPlan
from speccompile.compiler.build.tiny_model import tiny_round
from speccompile.compiler.build.traced_graphs import trace_graphs
from speccompile.compiler.checkpoints.encoder_decoder import hidden_tokens
from speccompile.compiler.models.eager import round_caches
from speccompile.compiler.models.load import ModelFiles, load_model
from speccompile.compiler.models.sourced import read_source
from speccompile.compiler.prove import distribution
from speccompile.compiler.prove.distribution import MORE_SETTINGS, SETTINGS, Request, sample_count
from speccompile.compiler.prove.processors import eager_reference
from speccompile.compiler.prove.tokens import Sources, engine_reference, under_rules
from speccompile.contract import COMPONENTS
from speccompile.plan.plan import CascadePlan, EnginePlan, PrecisionPlan, RetrievalPlan
from speccompile.progress import log_step
from speccompile.runtime import Bundle
from speccompile.runtime.devices.onnxruntime import OnnxRuntimeEngine

SMALL_SAMPLES = 3000
"""Number of samples for each of the settings: enough for every mistake that the test suite tries."""

_OTHERS = 4  # divisor of the samples of all engines after the first


@dataclass(frozen=True)
class DistributionInputs:
    """Inputs of the distribution level of the proof, beside graphs and prompts. weight_bytes: of the target, by which
    the number of samples is chosen; name: of the bundle. The rest is as in `TokenProofInputs`."""

    round_plan: RoundPlan
    weight_bytes: int
    name: str
    retrieval: RetrievalPlan | None
    cascade: CascadePlan | None
    engines: tuple[EnginePlan, ...]


@dataclass(frozen=True)
class SmallProofInputs:
    """Inputs of the small model's samples: the recipe's round, and their number at each setting."""

    round_plan: RoundPlan
    samples: int


@dataclass(frozen=True)
class SampleInputs:
    """Inputs of the samples of an engine's graphs, of which there are `samples` at each setting. prompt: token ids;
    manifest: the fields on which the runtime depends."""

    target: ModelFiles
    files: GraphFiles
    precision: Mapping[str, str]
    prompt: list[int]
    samples: int
    retrieval: RetrievalPlan | None
    cascade: CascadePlan | None
    manifest: Mapping[str, Any]
    source: list[int] | None = None


def prove_distributions(
    inputs: DistributionInputs,
    manifest: Manifest,
    engines: Sequence[ProofEngine],
    folder: Path,
    prompts: Sequence[list[int]],
    steps: CachedSteps,
    sources: Sources = None,
) -> list[dict[str, Any]]:
    """Prove the distributions that all bundles sample, against the target's own probabilities. Return rows of the
    proof.

    engines: the recipe's lowered graphs in `folder`. Raise ProofError; see `prove.distribution`.
    """
    small = SmallProofInputs(inputs.round_plan, SMALL_SAMPLES)
    found = steps.result("proving distributions on the small model", small, lambda: prove_small(small))
    rows = [{"model": "small", "engines": []} | row for row in found]
    target, whole = inputs.round_plan.target, manifest.to_json()
    decided = {name: value for name, value in whole.items() if name not in ("name", "plan", "engines")}
    most = sample_count(inputs.weight_bytes)
    for number, engine in enumerate(engines):
        count = min(most, max(100, most // _OTHERS)) if number else most
        samples = SampleInputs(
            target, GraphFiles(folder, tuple(engine.entry.files.values())), engine.entry.precision, prompts[0], count,
            inputs.retrieval, inputs.cascade, decided, None if sources is None else sources[0],
        )  # fmt: skip
        title = f"proving distributions on {engine.lowered.name}"

        def prove(samples: SampleInputs = samples, engine: ProofEngine = engine) -> list[dict[str, Any]]:
            request = Request(SETTINGS, samples.samples)
            return _prove(samples.target, manifest, engine, folder, samples.prompt, request, source=samples.source)

        found = steps.result(title, samples, prove)
        rows += [{"model": inputs.name, "engines": engines_of(engine.lowered, inputs.engines)} | row for row in found]
    return rows


def prove_small(inputs: SmallProofInputs) -> list[dict[str, Any]]:
    """Compile a small model with the round's drafter and rule, and return the rows of its proof. Raise ProofError."""
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with log_step("compiling a small model with the recipe's drafter and rule"):
            small = tiny_round(inputs.round_plan, folder)
            parts = trace_graphs(small.trace, folder, CachedSteps(), prove=False)
            words = PrecisionPlan("float32", "float32" if small.has_weights else None, None)
            planned = EnginePlan(0, "the small model", "onnxruntime", "cpu", None, words)
            (lowered,) = lower_all(small.lowering((planned,)), parts, folder, [], CachedSteps()).values()
            drafter = small.drafter.to_json() | {"models": [None for _ in small.models]}
            manifest = make_manifest(small, Description("small", (), {"drafter": drafter}), parts, folder)
        engine = proof_engine(lowered, folder)
        request = Request(MORE_SETTINGS, inputs.samples, 2 + manifest.depth)
        return _prove(small.target, manifest, engine, folder, list(range(8)), request, "the small model")


def _prove(
    target: ModelFiles, manifest: Manifest, engine: ProofEngine, folder: Path, prompt: list[int], request: Request,
    name: str = "", source: list[int] | None = None,
) -> list[dict[str, Any]]:  # fmt: skip
    """Compare samples with transformers in float32. Other precisions have other weights: compare with the engine's
    logits. name: of the model in messages, by default the engine's; source: of a target with an
    encoder."""
    name, settings = name or engine.lowered.name, len(request.settings)
    with log_step(f"proving distributions on {name}: {request.count} samples at {settings} settings"):
        proposer = proof_proposer(folder, manifest)
        opened = OnnxRuntimeEngine(folder, engine.entry, batch_size=manifest.batch_size)
        bundle = Bundle(manifest, opened, engine.entry, None, None, proposer)
        prompt = distribution.make_prompt(bundle, prompt, source)
        drawn = distribution.draw_all(bundle, prompt, request, source=source)
        hidden = () if source is None else hidden_tokens(target.folder)
        if engine.entry.precision["target"] != "float32":
            reference = under_rules(engine_reference(bundle, source), manifest, len(prompt), hidden)
            return distribution.check(manifest, drawn, reference)
        del bundle  # before its model is loaded again
        free_memory()
        model = load_model(target.folder, manifest.max_length)
        read_source(model, source)
        round_caches(model, cache_dtype(manifest.graphs, COMPONENTS[0]))
        return distribution.check(manifest, drawn, under_rules(eager_reference(model), manifest, len(prompt), hidden))
