"""The token level of a build's proof: the graphs of every engine against themselves, and against transformers."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from speccompile.bundle import acceptance
from speccompile.bundle.manifest import TOKENIZER, Manifest
from speccompile.bundle.prompts import read_prompts
from speccompile.compiler.build.cached_steps import CachedSteps, graph_hashes
from speccompile.compiler.build.lowered import sharing_key
from speccompile.compiler.build.lowered_proof import ProofEngine
from speccompile.compiler.build.memory import free_memory
from speccompile.compiler.build.modules import drafter_context, drafter_key, model_key
from speccompile.compiler.build.proposals import proof_proposer
from speccompile.compiler.models.load import load_model
from speccompile.compiler.prove import reference, seeds, tokens
from speccompile.drafters.probe import Text, compare_interpretations
from speccompile.errors import PromptError
from speccompile.progress import log_step
from speccompile.recipe import Plan
from speccompile.runtime import Bundle, Generation
from speccompile.runtime.text.tokenizer import Tokenizer


def proof_prompts(plan: Plan, folder: Path) -> list[list[int]]:
    """Return token ids of the proof's prompts: the recipe's, by the tokenizer in `folder`, or random ones by default.

    Raise PromptError, naming file and prompt, for one that is longer than the buffers.
    """
    if plan.prove.prompts is None:
        return tokens.default_prompts(plan.target.facts.vocabulary_size, plan.max_length, plan.prefill_chunk)
    return token_ids(plan, plan.prove.prompts, folder)


def token_ids(plan: Plan, file: Path, folder: Path) -> list[list[int]]:
    """Return token ids of a prompts file, by the tokenizer in `folder`. Raise PromptError as `proof_prompts` does."""
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
    plan: Plan,
    manifest: Manifest,
    engines: Sequence[ProofEngine],
    folder: Path,
    prompts: list[list[int]],
    steps: CachedSteps,
) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Prove the tokens of all lowered graphs: speculative against autoregressive, both against transformers. Also
    return a head's accuracy on the target's text (`drafters.probe`), None for other drafters.

    Graphs for a GPU run on the CPU here: each row names the engines that it covers, and the executor of the graphs.
    """
    rows: list[dict[str, Any]] = []
    found: list[list[tokens.GeneratedTokens]] = []
    loaded: list[nn.Module] = []

    def model() -> nn.Module:
        """Return the reference model, loaded at first use."""
        if not loaded:
            loaded.append(load_model(plan.target.folder, plan.max_length))
        return loaded[0]

    for engine in engines:
        row, written = _prove_engine(plan, manifest, engine, folder, prompts, steps)
        found.append(written)
        key = {"model": model_key(plan.target), "max_length": plan.max_length, "written": _json(written)}

        def against(engine: ProofEngine = engine, written: list[tokens.GeneratedTokens] = written) -> dict[str, Any]:
            with log_step(f"proving tokens of {engine.lowered.name} against transformers"):
                return reference.check_tokens(model(), written, reference.judging_precision(model(), engine.entry))

        key |= {"precision": engine.entry.precision, "backend": engine.entry.backend}
        title = f"proving tokens of {engine.lowered.name} against transformers"
        row["transformers"] = steps.result(title, key, against)
        rows.append(row)
    if plan.drafter.head is None or not plan.drafter.head.taps:  # without features there is only one interpretation
        return rows, None

    def probe() -> dict[str, Any] | None:
        with log_step("probing how the head is read"):
            texts = [Text(each.prompt_ids + each.token_ids, len(each.prompt_ids)) for each in found[0]]
            return compare_interpretations(replace(drafter_context(plan, steps), model=model()), model(), texts)

    key = {"written": _json(found[0]), "drafter": drafter_key(plan), "max_length": plan.max_length}
    return rows, steps.result("probing how the head is read", key, probe)


def _prove_engine(
    plan: Plan, manifest: Manifest, engine: ProofEngine, folder: Path, prompts: list[list[int]], steps: CachedSteps
) -> tuple[dict[str, Any], list[tokens.GeneratedTokens]]:
    """Return the row of one engine's graphs, and its tokens for the reference to check."""
    lowered, entry = engine.lowered, engine.entry
    title, names = f"proving tokens on {lowered.name}", [graph.name for graph in entry.graphs]
    asked = {"prompts": prompts, "max_new_tokens": plan.prove.max_new_tokens, "precision": entry.precision}
    proposed = {} if plan.drafter.retrieval is None else {"retrieval": plan.drafter.retrieval.to_json()}
    if proposed and plan.drafter.cascade is not None:
        proposed["cascade"] = plan.drafter.cascade.to_json()
    whole = manifest.to_json()

    def decode_alone(bundle: Bundle) -> list[dict[str, Any]]:
        return [asdict(each) for each in tokens.written(bundle, prompts, plan.prove.max_new_tokens, True)]

    def prove() -> dict[str, Any]:
        with log_step(title):
            opened = engine.open(folder, *names, batch_size=manifest.batch_size)
            bundle = Bundle(manifest, opened, entry, None, None, proof_proposer(folder, manifest))
            speculative = tokens.written(bundle, prompts, plan.prove.max_new_tokens, False)
            same = {name: whole[name] for name in _OF_THE_TARGET}
            key = asked | {"files": graph_hashes(folder, entry.files["verify"]), "manifest": same}
            alone = steps.result(f"decoding alone on {lowered.name}", key, partial(decode_alone, bundle))
            cases = list(tokens.cases(bundle, prompts, speculative, [Generation(**each) for each in alone]))
            ties = [tie for case in cases if (tie := tokens.check_equal(bundle, case))]
            row = tokens.summary(cases, ties)
            if plan.prove.prompts is not None and manifest.tokens:  # random prompts tell nothing about texts
                row[acceptance.KEY] = tokens.acceptance_of(speculative, manifest).to_json()
            if seeds.applies(bundle):
                row["seeds"] = seeds.check(bundle, prompts, plan.prove.max_new_tokens)
            del bundle
            free_memory()
            return {"row": row, "written": _json([case.written for case in cases])}

    decided = {name: value for name, value in whole.items() if name not in ("name", "plan", "engines")}
    found = steps.result(
        title, asked | proposed | {"files": graph_hashes(folder, *entry.files.values()), "manifest": decided}, prove
    )
    stands_for = [planned.name for planned in plan.engines if sharing_key(planned) == lowered.identity]
    row: dict[str, Any] = {"engine": lowered.name, "engines": stands_for, "executed_by": "onnxruntime cpu"}
    row |= {"precision": entry.precision} | found["row"]
    return row, [tokens.GeneratedTokens(**each) for each in found["written"]]


_OF_THE_TARGET = (
    "batch_size", "max_length", "prefill_chunk", "decoding", "method", "eos_token_ids", "vocabulary_size",
)  # fmt: skip
"""Fields of a manifest on which autoregressive decoding depends."""


def _json(written: Sequence[tokens.GeneratedTokens]) -> list[dict[str, Any]]:
    return [asdict(each) for each in written]
