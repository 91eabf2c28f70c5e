"""Quality of each precision on text: perplexity of the target, and agreement with float32."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from speccompile.compiler.build.cached_steps import CachedSteps, graph_hashes
from speccompile.compiler.build.lowered import Lowered
from speccompile.compiler.build.lowered_proof import ProofEngine
from speccompile.compiler.build.memory import free_memory
from speccompile.compiler.build.modules import model_key, tree_kind
from speccompile.compiler.build.token_proof import token_ids
from speccompile.compiler.lower.lowering_targets import LoweringTarget, WeightFormat, lowering_target, weight_format
from speccompile.compiler.models.load import load_model
from speccompile.compiler.prove import quality
from speccompile.compiler.prove.reference import sequence_logits
from speccompile.compiler.step.layers import counting_layers
from speccompile.errors import PromptError
from speccompile.progress import log_step
from speccompile.recipe import EnginePlan, Plan

Target = tuple[LoweringTarget, WeightFormat]
"""Key that distinguishes the targets of engines."""

TREE_TOKENS = 1024
"""Maximum number of tokens for measuring quality if drafts are a tree: they are read one at a time, ten times as
slowly."""


def quality_texts(plan: Plan, folder: Path, prompts: Sequence[list[int]]) -> list[list[int]]:
    """Return token ids of prove.held_out, by the tokenizer in `folder`; without it those of the recipe's prompts.

    Return no texts if there are only the build's own prompts: they are random, so a model's perplexity on them means
    nothing. Raise PromptError, naming file and text, for one that is too short to predict a token, or longer than the
    buffers.
    """
    if plan.prove.held_out is not None:
        texts = _held_out(plan, plan.prove.held_out, folder)
    else:
        texts = [prompt for prompt in prompts if len(prompt) > 1] if plan.prove.prompts else []
    return texts if tree_kind(plan) == "chain" else _first(texts, TREE_TOKENS)


def _held_out(plan: Plan, file: Path, folder: Path) -> list[list[int]]:
    texts = token_ids(plan, file, folder)
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
    plan: Plan, engines: Sequence[ProofEngine], folder: Path, texts: list[list[int]], steps: CachedSteps
) -> dict[str, Any]:
    """Return the result of `_measure`, perhaps from the build cache."""
    files = [each.entry.files["verify"] for each in engines]
    key: dict[str, Any] = {
        "files": graph_hashes(folder, *files),
        "texts": texts,
        "model": model_key(plan.target),
    }
    named = [[planned.name, planned.backend, planned.provider] for planned in plan.engines]
    key |= {"engines": named, "precision": [planned.precision.words() for planned in plan.engines]}
    key |= {"file": plan.prove.held_out_reference or plan.prove.reference, "max_length": plan.max_length}
    return steps.result("measuring quality", key, lambda: _measure(plan, engines, folder, texts))


def _measure(plan: Plan, engines: Sequence[ProofEngine], folder: Path, texts: list[list[int]]) -> dict[str, Any]:
    """Compare the target of every engine with transformers in float32, on the same texts. Raise ProofError.

    Graphs for a GPU run on the CPU here, as in the rest of the proof; those with the same target are measured once.
    """
    size, tokens = plan.target.facts.vocabulary_size, sum(len(text) - 1 for text in texts)
    with log_step(f"measuring quality on {len(texts)} texts, {tokens} tokens: transformers"):
        float32 = _eager(plan, texts)
        free_memory()
    rows = []
    for (form, numbers), engine in {_target(each.lowered): each for each in engines}.items():
        with log_step(f"measuring quality: {form.name} in {numbers.name}"):
            (verify,) = (graph for graph in engine.entry.graphs if graph.name == "verify")
            running = engine.open(folder, "verify")
            logits = quality.engine_logits(running, verify, texts, plan.prefill_chunk, plan.batch_size)
            found = quality.predictions(logits, texts, size, f"{form.name} in {numbers.name}")
            free_memory()
        names = [each.name for each in plan.engines if _planned_target(each) == (form, numbers)]
        row: dict[str, Any] = {"engines": names, "executed_by": "onnxruntime cpu", "precision": numbers.word}
        rows.append(row | {"block_size": numbers.block_size} | quality.agreement(found, float32))
    return {
        "file": plan.prove.held_out_reference or plan.prove.reference,
        "texts": len(texts),
        "tokens": tokens,
        "kl_tokens": len(float32.logprobs),
        "perplexity": round(float32.perplexity, 4),
        "engines": rows,
    }


def _target(lowered: Lowered) -> Target:
    return lowered.form, lowered.weight_format("verify")


def _planned_target(planned: EnginePlan) -> Target:
    form = lowering_target(planned)
    return form, weight_format(form, planned.precision, "target")


def _eager(plan: Plan, texts: list[list[int]]) -> quality.Predictions:
    model = load_model(plan.target.folder, plan.max_length)

    def logits() -> Iterator[quality.Block]:
        start = 0
        with counting_layers(model, "running transformers", len(texts)):
            for text in texts:
                yield start, sequence_logits(model, text[:-1])
                start += len(text) - 1

    return quality.predictions(logits(), texts, plan.target.facts.vocabulary_size, "transformers")
