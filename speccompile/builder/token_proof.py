"""The token level of a build's proof: the graphs of every engine against themselves, and against transformers."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from speccompile.builder.lowered import form_and_precision
from speccompile.builder.lowered_proof import ProofEngine
from speccompile.builder.memory import release
from speccompile.builder.modules import site_of
from speccompile.bundle.manifest import TOKENIZER, Manifest
from speccompile.bundle.prompts import read_prompts
from speccompile.errors import PromptError
from speccompile.families.probe import Text, probe_head
from speccompile.models.load import load_model
from speccompile.progress import step
from speccompile.prove import reference, seeds, tokens
from speccompile.recipe import Plan
from speccompile.runtime import Bundle
from speccompile.runtime.text import Text as Tokenizer


def proof_prompts(plan: Plan, folder: Path) -> list[list[int]]:
    """Token ids of the prompts to prove on: the recipe's, by the tokenizer in `folder`, or random ones without any.

    Raises PromptError, naming file and prompt, for one that the buffers cannot hold.
    """
    if plan.prove.prompts is None:
        return tokens.own_prompts(plan.target.facts.vocabulary_size, plan.max_length, plan.prefill_chunk)
    return token_ids(plan, plan.prove.prompts, folder)


def token_ids(plan: Plan, file: Path, folder: Path) -> list[list[int]]:
    """Token ids of a prompts file, by the tokenizer in `folder`. Raises PromptError as `proof_prompts`."""
    text = Tokenizer(folder / TOKENIZER) if plan.target.facts.tokenizer else None
    prompts = []
    for number, prompt in enumerate(read_prompts(file), 1):
        if isinstance(prompt, str):
            assert text is not None, "the plan refuses text without a tokenizer"
            prompt = text.encode(prompt)
        if len(prompt) > plan.max_length:
            raise PromptError(
                f"{file}: received {len(prompt)} tokens in prompt {number}, expected at most "
                f"{plan.max_length}, which is cache.max_length",
                hint="shorten the prompt, or set a larger cache.max_length",
            )
        prompts.append(prompt)
    return prompts


def prove_tokens(
    plan: Plan, manifest: Manifest, engines: Sequence[ProofEngine], folder: Path, prompts: list[list[int]]
) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """The token level for all lowered graphs: speculative against autoregressive, both against transformers; and how
    often a head is right on what the target wrote (`families.probe`), None for other drafters.

    Graphs for a GPU run on the CPU here: each row names the engines it stands for, and what executed the graphs.
    """
    rows: list[dict[str, Any]] = []
    cases_of = []
    for engine in engines:
        lowered, entry = engine.lowered, engine.entry
        with step(f"proving tokens on {lowered.name}"):
            names = [graph.name for graph in entry.graphs]
            bundle = Bundle(manifest, engine.open(folder, *names), entry, None, None)
            cases = list(tokens.run(bundle, prompts, plan.prove.max_new_tokens))
            ties = [tie for case in cases if (tie := tokens.check_equal(bundle, case))]
            stands_for = [planned.name for planned in plan.engines if form_and_precision(planned) == lowered.identity]
            row: dict[str, Any] = {"engine": lowered.name, "engines": stands_for, "executed_by": "onnxruntime cpu"}
            rows.append(row | {"precision": entry.precision} | tokens.summary(cases, ties))
            if seeds.applies(bundle):
                rows[-1]["seeds"] = seeds.check(bundle, prompts, plan.prove.max_new_tokens)
            cases_of.append(cases)
            del bundle
            release()
    with step("proving tokens against transformers"):
        model = load_model(plan.target.folder, plan.max_length)
        for row, cases, engine in zip(rows, cases_of, engines, strict=True):
            row["transformers"] = reference.check_cases(model, cases, reference.judged_as(model, engine.entry))
    if plan.drafter.head is None:
        return rows, None
    with step("probing how the head is read"):
        texts = [Text(case.prompt_ids + case.faithful.token_ids, len(case.prompt_ids)) for case in cases_of[0]]
        return rows, probe_head(replace(site_of(plan), model=model), model, texts)
