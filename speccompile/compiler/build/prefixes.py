"""Prefixes that a bundle ships: computed with the finished engines, and proven to change no token."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from speccompile.bundle.manifest import TOKENIZER, EngineEntry
from speccompile.errors import PromptError, ProofError
from speccompile.plan.prefixes import PrefixPlan
from speccompile.progress import LOGGER, log_step
from speccompile.runtime import Bundle
from speccompile.runtime.shipped_prefixes import ShippedPrefixes, prefix_file
from speccompile.runtime.text.tokenizer import Tokenizer


def prefix_token_ids(prefixes: Sequence[PrefixPlan], folder: Path, max_length: int) -> dict[str, list[int]]:
    """Return name -> token ids of the prefixes, by the tokenizer in `folder`. Raise PromptError for one that leaves no
    room for a token."""
    if not prefixes:
        return {}
    tokenizer, found = Tokenizer(folder / TOKENIZER), dict[str, list[int]]()
    for prefix in prefixes:
        ids = found[prefix.name] = tokenizer.encode(prefix.text)
        if len(ids) >= max_length:
            raise PromptError(
                f"prefix {prefix.name} ({prefix.reference}): received {len(ids)} tokens, expected fewer than "
                f"{max_length}, which is cache.max_length",
                hint="shorten the text, or set a larger cache.max_length",
            )
    return found


def add_prefixes(
    prefixes: dict[str, list[int]],
    folder: Path,
    entries: Sequence[EngineEntry],
    prompts: Sequence[list[int]],
    most: int,
) -> list[dict[str, Any]]:
    """Write the prefixes of every engine that runs on the processor into the bundle in `folder`, whose other files are
    complete. Return a row of the proof for each: engine, name, tokens, and the number of continuations that went on
    from it and equal those without it.

    prompts: of the proof, which continue a prefix; none without a proof. most: new tokens of each continuation. Raise
    ProofError, naming the first token that differs.
    """
    rows = []
    for entry in entries if prefixes else ():
        if entry.provider != "cpu" or entry.deferred:
            LOGGER.warning("note: engine %s has no prefixes: it does not run where it is built", entry.name)
            continue
        with log_step(f"prefixes of {entry.name}"):
            expected = _write_all(prefixes, folder, entry.name, prompts, most)
            cached = _compare(expected, folder, entry.name, most)
        rows += [
            {"engine": entry.name, "name": name, "tokens": len(ids), "continuations": cached[name]}
            for name, ids in prefixes.items()
        ]
    return rows


Continuations = dict[str, list[tuple[list[int], list[int]]]]
"""Name of a prefix -> prompts that begin with it, each with its new tokens."""


def _write_all(
    prefixes: dict[str, list[int]], folder: Path, engine: str, prompts: Sequence[list[int]], most: int
) -> Continuations:
    """Write the prefixes of an engine. Return continuations that were generated without them."""
    expected: Continuations = {}
    with Bundle.open(folder, engine=engine, verify=False) as bundle:
        room = bundle.manifest.max_length
        for name, ids in prefixes.items():
            file = folder / prefix_file(engine, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            bundle.generate(
                ids, max_new_tokens=1, adaptive=False
            )  # so that the drafter reads it, whatever drafts cost here
            bundle.save_session(file)
            file.chmod(0o644)  # like the bundle's other files: it holds the recipe's text
            tried = [ids, *([*ids, *prompt] for prompt in prompts if len(ids) + len(prompt) < room)] if prompts else []
            expected[name] = [(prompt, _generated(bundle, prompt, most).token_ids) for prompt in tried[:3]]
    return expected


def _compare(expected: Continuations, folder: Path, engine: str, most: int) -> Counter[str]:
    """Return name -> number of continuations that went on from the prefix, all of them as expected."""
    cached = Counter[str]()
    with Bundle.open(folder, engine=engine, verify=False) as bundle:
        files = [folder / prefix_file(engine, name) for name in expected]  # the bundle's hashes do not list them yet
        bundle._prefixes = ShippedPrefixes(bundle._sessions, bundle._loop.serves, files)
        for name, continuations in expected.items():
            for prompt, tokens in continuations:
                generation = _generated(bundle, prompt, most)
                found, cached[name] = generation.token_ids, cached[name] + (generation.cached_tokens > 0)
                if found == tokens:
                    continue
                index = next((at for at, (a, b) in enumerate(zip(found, tokens, strict=False)) if a != b), len(tokens))
                raise ProofError(
                    f"prefix {name} of {engine}: new token {index} behind {len(prompt)} tokens differs: "
                    f"received {found[index : index + 1]}, expected {tokens[index : index + 1]}, as without the prefix",
                    hint="remove prefixes from the recipe, and report this with the recipe",
                )
    return cached


def _generated(bundle: Bundle, prompt: list[int], most: int) -> Any:
    return bundle.generate(prompt, max_new_tokens=min(most, bundle.manifest.max_length - len(prompt)), adaptive=False)
