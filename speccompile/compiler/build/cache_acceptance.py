"""Acceptance by depth with quantized caches beside float caches."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from speccompile.bundle.acceptance import MeasuredAcceptance
from speccompile.bundle.caches import has_quantized_caches
from speccompile.bundle.manifest import Manifest
from speccompile.compiler.build.cache_key import GraphFiles
from speccompile.compiler.build.cached_steps import CachedSteps
from speccompile.compiler.build.lowered import engines_of
from speccompile.compiler.build.lowered_proof import ProofEngine
from speccompile.compiler.build.memory import free_memory
from speccompile.compiler.build.proposals import proof_proposer
from speccompile.compiler.build.token_proof import GenerationInputs, PromptInputs
from speccompile.compiler.lower.float_caches import float_twin
from speccompile.compiler.lower.lowering_targets import CPU
from speccompile.compiler.prove import tokens
from speccompile.errors import ProofError
from speccompile.plan.plan import EnginePlan
from speccompile.progress import log_step
from speccompile.runtime import Bundle

_PROMPTS = 32
"""Maximum number of prompts of which acceptance is compared."""

_ERRORS = 2
"""Standard errors of the difference that a loss must exceed its bound by: a few rounds tell little."""


@dataclass(frozen=True)
class CacheAcceptanceInputs:
    """Inputs of the comparison of acceptance, beside graphs and texts. prompts: of the proof; most: share of the
    mean acceptance length that may be lost."""

    prompts: PromptInputs
    max_new_tokens: int
    engines: tuple[EnginePlan, ...]
    most: float


def compare_acceptance(
    inputs: CacheAcceptanceInputs,
    manifest: Manifest,
    engines: Sequence[ProofEngine],
    folder: Path,
    prompts: Sequence[list[int]],
    texts: Sequence[list[int]],
    steps: CachedSteps,
) -> list[dict[str, Any]]:
    """Return, for engines on a CPU with quantized caches, acceptance with these caches and with floats:
    {engines, quantized, float}, see `MeasuredAcceptance`. No rows for a bundle that drafts nothing.

    Prompts are the recipe's, or the first halves of its held-out texts. Raise ProofError for caches that shorten what
    is accepted by more than the recipe accepts.
    """
    shown = list(prompts) if inputs.prompts.file else [text[: max(1, len(text) // 2)] for text in texts]
    rows = []
    for engine in engines:
        if not manifest.tokens or engine.lowered.form is not CPU or not has_quantized_caches(engine.entry.graphs):
            continue
        pairs = [float_twin(graph, engine.entry.files[graph.name], folder) for graph in engine.entry.graphs]
        files, graphs = {graph.name: file for graph, file in pairs}, tuple(graph for graph, _ in pairs)
        twin = replace(engine, entry=replace(engine.entry, files=files, graphs=graphs))
        quantized, floats = (
            _acceptance(inputs, manifest, each, folder, shown[:_PROMPTS], word, steps)
            for each, word in ((engine, "quantized"), (twin, "float"))
        )
        check_acceptance(quantized, floats, inputs.most)
        names = engines_of(engine.lowered, inputs.engines)
        rows.append({"engines": names, "quantized": quantized.to_json(), "float": floats.to_json()})
    return rows


def _acceptance(
    inputs: CacheAcceptanceInputs,
    manifest: Manifest,
    engine: ProofEngine,
    folder: Path,
    prompts: list[list[int]],
    word: str,
    steps: CachedSteps,
) -> MeasuredAcceptance:
    title, entry = f"measuring acceptance with {word} caches on {engine.lowered.name}", engine.entry

    def measure() -> dict[str, Any]:
        with log_step(title):
            opened = engine.open(folder, *entry.files, batch_size=manifest.batch_size)
            bundle = Bundle(manifest, opened, entry, None, None, proof_proposer(folder, manifest))
            written = tokens.decode_all(bundle, prompts, inputs.max_new_tokens, False)
            found = tokens.acceptance_of(written, manifest).to_json()
            del bundle
            free_memory()
            return found

    decided = {name: value for name, value in manifest.to_json().items() if name not in ("name", "plan", "engines")}
    files = GraphFiles(folder, tuple(entry.files.values()))
    asked = GenerationInputs(files, entry.precision, prompts, inputs.max_new_tokens, decided)
    found = steps.result(title, asked, measure)
    return MeasuredAcceptance(found["rounds"], found["drafted"], tuple(found["tried"]), tuple(found["accepted"]))


def check_acceptance(quantized: MeasuredAcceptance, floats: MeasuredAcceptance, most: float) -> None:
    """Raise ProofError if quantized caches shorten the mean acceptance length by more than the share `most`, beyond two
    standard errors of the difference."""
    lost = 1 - quantized.mean_length / floats.mean_length
    error = (quantized.length_error**2 + floats.length_error**2) ** 0.5 / floats.mean_length
    if lost - _ERRORS * error > most:
        raise ProofError(
            f"cache.dtype: with quantized caches a round gives {quantized.mean_length:.2f} tokens in the mean, and "
            f"{floats.mean_length:.2f} with float caches: {100 * lost:.1f} % fewer over {quantized.rounds} rounds, "
            f"expected at most {100 * most:g} %, which is cache.max_acceptance_loss",
            hint="set cache.dtype and drafter_cache.dtype to float, or accept the loss: "
            f"cache.max_acceptance_loss={lost + 0.005:.2f}",
        )
