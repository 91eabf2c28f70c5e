"""Quality of each precision on text: perplexity of the target, and agreement with float32."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil, floor, log10
from pathlib import Path
from typing import Any

from speccompile.bundle.caches import caches_in
from speccompile.compiler.build.cache_key import GraphFiles
from speccompile.compiler.build.cached_steps import CachedSteps
from speccompile.compiler.build.lowered import Lowered
from speccompile.compiler.build.lowered_proof import ProofEngine
from speccompile.compiler.build.memory import free_memory
from speccompile.compiler.build.token_proof import PromptInputs, token_ids
from speccompile.compiler.lower.lowering_targets import LoweringTarget, WeightFormat, lowering_target, weight_format
from speccompile.compiler.models.eager import round_caches
from speccompile.compiler.models.load import ModelFiles, load_model
from speccompile.compiler.prove import quality
from speccompile.compiler.prove.reference import sequence_logits
from speccompile.compiler.step.layers import counting_layers
from speccompile.contract import FLOAT_CACHE
from speccompile.errors import PromptError, ProofError
from speccompile.plan.caches import CachePlan
from speccompile.plan.plan import EnginePlan
from speccompile.progress import log_step

Target = tuple[LoweringTarget, WeightFormat]
"""Key that distinguishes the targets of engines."""

TREE_TOKENS = 1024
"""Maximum number of tokens for measuring quality if drafts are a tree: they are read one at a time, ten times as
slowly."""


@dataclass(frozen=True)
class TextInputs:
    """Inputs of the texts that measure quality. prompts: of the proof; held_out: file of other texts. are_long: drafts
    are a chain, so that long texts are read fast."""

    prompts: PromptInputs
    held_out: Path | None
    are_long: bool


@dataclass(frozen=True)
class QualityInputs:
    """Inputs of measuring quality, beside graphs and texts. file: of the texts, as the recipe names it. caches: dtypes
    of stored keys and values, and the largest loss by them."""

    target: ModelFiles
    max_length: int
    batch_size: int
    prefill_chunk: int
    file: str | None
    engines: tuple[EnginePlan, ...]
    caches: CachePlan


@dataclass(frozen=True)
class MeasuredInputs:
    """Inputs of predictions on texts. targets: names of (lowering target, weight format); files: `verify` of each.
    texts: token ids. cache: dtype of the target's stored keys and values."""

    target: ModelFiles
    max_length: int
    batch_size: int
    prefill_chunk: int
    files: GraphFiles
    targets: list[tuple[str, str]]
    texts: list[list[int]]
    cache: str


def quality_texts(inputs: TextInputs, folder: Path, prompts: Sequence[list[int]]) -> list[list[int]]:
    """Return token ids of prove.held_out, by the tokenizer in `folder`; without it those of the recipe's prompts.

    Return no texts if there are only the build's own prompts: they are random, so a model's perplexity on them means
    nothing. Raise PromptError, naming file and text, for one that is too short to predict a token, or longer than the
    buffers.
    """
    if inputs.held_out is not None:
        texts = _held_out(inputs.prompts, inputs.held_out, folder)
    else:
        texts = [prompt for prompt in prompts if len(prompt) > 1] if inputs.prompts.file else []
    return texts if inputs.are_long else _first(texts, TREE_TOKENS)


def _held_out(inputs: PromptInputs, file: Path, folder: Path) -> list[list[int]]:
    texts = token_ids(inputs, file, folder)
    for number, text in enumerate(texts, 1):
        if len(text) < 2:
            raise PromptError(
                f"{file}: received one token in prompt {number}, expected two or more: the first is not predicted",
                hint="write longer texts: a few hundred tokens each",
            )
    return texts


def _first(texts: list[list[int]], tokens: int) -> list[list[int]]:
    """Return whole texts with at most `tokens` tokens together, and at least the first text."""
    ends = accumulate(map(len, texts))
    return [text for number, (text, end) in enumerate(zip(texts, ends, strict=True)) if end <= tokens or not number]


def measure_quality(
    inputs: QualityInputs, engines: Sequence[ProofEngine], folder: Path, texts: list[list[int]], steps: CachedSteps
) -> dict[str, Any]:
    """Compare the target of every engine with transformers in float32, on the same texts. Raise ProofError, also for
    quantized caches that lose more than the recipe accepts.

    Graphs for a GPU run on the CPU here, as in the rest of the proof; those with the same target are measured once.
    """
    targets = {_target(each.lowered): each for each in engines}
    measured = MeasuredInputs(
        inputs.target, inputs.max_length, inputs.batch_size, inputs.prefill_chunk,
        GraphFiles(folder, tuple(each.entry.files["verify"] for each in targets.values())),
        [(form.name, numbers.name) for form, numbers in targets], texts, inputs.caches.target,
    )  # fmt: skip
    found = steps.result("measuring quality", measured, lambda: _measure(measured, targets))
    if "cache" in found:
        _check_cache(found["cache"], inputs.caches.max_divergence, found["kl_tokens"])
    rows = []
    for target, row in zip(targets, found.pop("engines"), strict=True):
        names = [each.name for each in inputs.engines if _planned_target(each) == target]
        ran: dict[str, Any] = {"engines": names, "executed_by": "onnxruntime cpu", "precision": target[1].word}
        rows.append(ran | {"block_size": target[1].block_size} | row)
    return {"file": inputs.file, **found, "engines": rows}


def _measure(inputs: MeasuredInputs, engines: Mapping[Target, ProofEngine]) -> dict[str, Any]:
    """Return transformers' perplexity on the texts, and the agreement of each engine with it."""
    texts, folder = inputs.texts, inputs.files.folder
    size, tokens = inputs.target.vocabulary_size, sum(len(text) - 1 for text in texts)
    with log_step(f"measuring quality on {len(texts)} texts, {tokens} tokens: transformers"):
        float32 = _eager(inputs, FLOAT_CACHE)
        free_memory()
    rows, cache = [], {}
    if inputs.cache != FLOAT_CACHE:
        with log_step(f"measuring quality: transformers with {caches_in(inputs.cache)}"):
            loss = quality.agreement(_eager(inputs, inputs.cache), float32)
            cache = {"cache": {"dtype": inputs.cache, **loss}}
            free_memory()
    for (form, numbers), engine in engines.items():
        with log_step(f"measuring quality: {form.name} in {numbers.name}"):
            (verify,) = (graph for graph in engine.entry.graphs if graph.name == "verify")
            running = engine.open(folder, "verify")
            logits = quality.engine_logits(running, verify, texts, inputs.prefill_chunk, inputs.batch_size)
            found = quality.predictions(logits, texts, size, f"{form.name} in {numbers.name}")
            free_memory()
        rows.append(quality.agreement(found, float32))
    return {
        "texts": len(texts),
        "tokens": tokens,
        "kl_tokens": len(float32.logprobs),
        "perplexity": round(float32.perplexity, 4),
        **cache,
        "engines": rows,
    }


def _check_cache(found: dict[str, Any], most: float, tokens: int) -> None:
    lost = found["kl_divergence"]
    if lost > most:
        raise ProofError(
            f"cache.dtype: {caches_in(found['dtype'])} change the target's probabilities by {lost:.6f} nats (mean "
            f"KL divergence from those with float caches, over {tokens} tokens of the texts; the likeliest token is "
            f"the same for {100 * found['same_argmax']:.2f} %), expected at most {most:g}: cache.max_divergence",
            hint=f"set cache.dtype to float, or accept the loss: cache.max_divergence={above(lost)}",
        )


def above(lost: float) -> str:
    """Return the loss, rounded up to two digits, as YAML reads numbers: without an exponent."""
    step = 10.0 ** (floor(log10(lost)) - 1)
    return f"{ceil(lost / step) * step:.7f}".rstrip("0")


def _target(lowered: Lowered) -> Target:
    return lowered.form, lowered.weight_format("verify")


def _planned_target(planned: EnginePlan) -> Target:
    form = lowering_target(planned)
    return form, weight_format(form, planned.precision, "target")


def _eager(inputs: MeasuredInputs, cache: str) -> quality.Predictions:
    model, texts = round_caches(load_model(inputs.target.folder, inputs.max_length), cache), inputs.texts

    def logits() -> Iterator[quality.Block]:
        start = 0
        with counting_layers(model, "running transformers", len(texts)):
            for text in texts:
                yield start, sequence_logits(model, text[:-1])
                start += len(text) - 1

    return quality.predictions(logits(), texts, inputs.target.vocabulary_size, "transformers")
