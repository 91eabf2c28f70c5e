"""The token level of a build's proof: every engine against itself, and against transformers."""

from pathlib import Path
from typing import Any

from speccompile.builder.memory import release
from speccompile.bundle.manifest import TOKENIZER, Manifest
from speccompile.bundle.prompts import read_prompts
from speccompile.errors import PromptError
from speccompile.models.load import load_model
from speccompile.progress import step
from speccompile.prove import reference, tokens
from speccompile.recipe import Plan
from speccompile.runtime import Bundle
from speccompile.runtime.onnxruntime import OnnxRuntimeEngine
from speccompile.runtime.text import Text


def proof_prompts(plan: Plan, folder: Path) -> list[list[int]]:
    """Token ids of the prompts to prove on: the recipe's, by the tokenizer in `folder`, or random ones without any.

    Raises PromptError, naming file and prompt, for one that the buffers cannot hold.
    """
    if plan.prove.prompts is None:
        return tokens.own_prompts(plan.target.facts.vocabulary_size, plan.max_length, plan.prefill_chunk)
    text = Text(folder / TOKENIZER) if plan.target.facts.tokenizer else None
    prompts = []
    for number, prompt in enumerate(read_prompts(plan.prove.prompts), 1):
        if isinstance(prompt, str):
            assert text is not None, "the plan refuses text without a tokenizer"
            prompt = text.encode(prompt)
        if len(prompt) > plan.max_length:
            raise PromptError(
                f"{plan.prove.prompts}: received {len(prompt)} tokens in prompt {number}, expected at most "
                f"{plan.max_length}, which is cache.max_length",
                hint="shorten the prompt, or set a larger cache.max_length",
            )
        prompts.append(prompt)
    return prompts


def prove_tokens(plan: Plan, manifest: Manifest, folder: Path, prompts: list[list[int]]) -> list[dict[str, Any]]:
    """The token level for every engine: speculative against autoregressive, both against transformers."""
    rows, cases_of = [], {}
    for entry in manifest.engines:
        with step(f"proving tokens on {entry.name}"):
            bundle = Bundle(manifest, OnnxRuntimeEngine(folder, entry, manifest.graphs), entry, None, None)
            cases = list(tokens.run(bundle, prompts, plan.prove.max_new_tokens))
            ties = [tie for case in cases if (tie := tokens.check_equal(bundle, case))]
            rows.append({"engine": entry.name, **tokens.summary(cases, ties)})
            cases_of[entry.name] = cases
            del bundle
            release()
    with step("proving tokens against transformers"):
        model = load_model(plan.target.folder, plan.max_length)
        for row, cases in zip(rows, cases_of.values(), strict=True):
            row["transformers"] = reference.check_cases(model, cases, plan.target.precision)
    return rows
