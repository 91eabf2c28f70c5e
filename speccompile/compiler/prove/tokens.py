"""The token level: speculative against autoregressive decoding on one engine. No torch: a bundle proves itself."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from speccompile.bundle.acceptance import MeasuredAcceptance
from speccompile.bundle.manifest import Manifest
from speccompile.compiler.prove.filters import Reference
from speccompile.compiler.prove.source_feeds import source_options
from speccompile.compiler.prove.tolerance import rounding, within_noise
from speccompile.errors import ProofError
from speccompile.progress import progress_counter
from speccompile.runtime import Bundle, Generation, first_difference
from speccompile.runtime.audio.rules import TokenRules, Written
from speccompile.runtime.devices.engine import Array
from speccompile.runtime.rounds.acceptance_rate import count_rounds
from speccompile.runtime.rounds.source_encoder import as_heard
from speccompile.runtime.sources import start_tokens

Prompt = str | Sequence[int]
Sources = Sequence[list[int]] | None
"""Source of each prompt, None for a target without an encoder."""
T = TypeVar("T")


@dataclass(frozen=True)
class Case:
    """One prompt, continued speculatively and autoregressively."""

    number: int
    prompt_ids: list[int]
    speculative: Generation
    autoregressive: Generation
    source: list[int] | None = None

    @property
    def exact_generation(self) -> Generation:
        """Return the generation whose tokens must be the target's own: an approximate method may change them."""
        return self.speculative if self.speculative.exact else self.autoregressive

    @property
    def where(self) -> str:
        """Return its name in messages."""
        return self.written.where

    @property
    def written(self) -> "GeneratedTokens":
        """Return the tokens that a reference judges."""
        return GeneratedTokens(
            self.number, self.prompt_ids, self.exact_generation.token_ids, self.exact_generation.mode, self.source
        )


@dataclass(frozen=True)
class GeneratedTokens:
    """Tokens of a bundle after a prompt that must be the target's own. mode: of decoding; source: of a target
    with an encoder."""

    number: int
    prompt_ids: list[int]
    token_ids: list[int]
    mode: str
    source: list[int] | None = None

    @property
    def where(self) -> str:
        """Return its name in messages."""
        shown = ", ".join(map(str, self.prompt_ids[:8])) + (", .." if len(self.prompt_ids) > 8 else "")
        return f"prompt {self.number} (token ids {shown})"


def default_prompts(vocabulary_size: int, max_length: int, chunk: int, seed: int = 0) -> list[list[int]]:
    """Return random prompts: one token, a repeated text, and a few more tokens than a prefill chunk."""
    return _random_texts(vocabulary_size, chunk + 3, 4, max(1, max_length // 2), seed)


def default_sources(vocabulary_size: int, max_length: int, seed: int = 2) -> list[list[int]]:
    """Return random sources: one token, a repeated text, and 40 tokens."""
    return _random_texts(vocabulary_size, 40, 3, max_length, seed)


def _random_texts(vocabulary_size: int, length: int, repeats: int, max_length: int, seed: int) -> list[list[int]]:
    random = np.random.default_rng(seed)
    texts = [random.integers(0, vocabulary_size, n).tolist() for n in (1, 7, length)]
    texts[1] *= repeats
    return [text[:max_length] for text in texts]


def _groups(items: Sequence[T], size: int) -> list[Sequence[T]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def given_prompts(bundle: Bundle, given: Sequence[Prompt] | None) -> tuple[Sequence[Prompt], Sources]:
    """Return the prompts of a proof by a bundle, and a source for each. given: the user's prompts, or sources for a
    target with an encoder; None for random ones."""
    manifest = bundle.manifest
    if manifest.source is None:
        limits = manifest.vocabulary_size, manifest.max_length, manifest.prefill_chunk
        return given or default_prompts(*limits, seed=1), None
    sources = [bundle.source_token_ids(each) for each in given or ()]
    sources = sources or default_sources(manifest.vocabulary_size, manifest.source["max_length"], seed=3)
    return [start_tokens(manifest.source)] * len(sources), sources


def decode_both(
    bundle: Bundle, prompts: Sequence[Prompt], max_new_tokens: int, sources: Sources = None, **options: Any
) -> Iterator[Case]:
    """Continue every prompt speculatively and autoregressively, in batches of the bundle's size.

    Every round has all drafts, so that counts are the same in every run. sources: one for each prompt, for a target
    with an encoder. options: of sampling, as in `Bundle.generate`.
    """
    speculative, autoregressive = (
        decode_all(bundle, prompts, max_new_tokens, is_plain, sources, **options) for is_plain in (False, True)
    )
    yield from pair_up(bundle, prompts, speculative, autoregressive, sources)


def decode_all(
    bundle: Bundle,
    prompts: Sequence[Prompt],
    max_new_tokens: int,
    autoregressive: bool,
    sources: Sources = None,
    **options: Any,
) -> list[Generation]:
    """Continue every prompt speculatively or autoregressively, as in `decode_both`, from empty persistent states."""
    bundle.reset()
    settings: dict[str, Any] = {"max_new_tokens": max_new_tokens, "autoregressive": autoregressive, "adaptive": False}
    found: list[Generation] = []
    title = f"decoding {'alone' if autoregressive else 'with drafts'}"
    with progress_counter(title, len(prompts), "prompts") as advance:
        for group in _groups(range(len(prompts)), bundle.manifest.batch_size):
            own = None if sources is None else [sources[number] for number in group]
            settings |= source_options(bundle.manifest, own)
            found += bundle.generate_batch([prompts[number] for number in group], **settings, **options)
            advance(len(group))
    return found


def acceptance_of(speculative: Sequence[Generation], manifest: Manifest) -> MeasuredAcceptance:
    """Return acceptance by depth over all rounds, each of which had the maximum number of drafts."""
    rounds = [each for one in speculative for each in zip(one.path_lengths, one.draft_lengths, strict=True)]
    return count_rounds(rounds, manifest.depth, is_chain=manifest.tree == "chain")


def pair_up(
    bundle: Bundle,
    prompts: Sequence[Prompt],
    speculative: Sequence[Generation],
    autoregressive: Sequence[Generation],
    sources: Sources = None,
) -> Iterator[Case]:
    """Yield both continuations of every prompt, numbered from 1."""
    for number, (prompt, ours, theirs) in enumerate(zip(prompts, speculative, autoregressive, strict=True), 1):
        source = None if sources is None else sources[number - 1]
        yield Case(number, bundle.token_ids(prompt), ours, theirs, source)


def check_equal(bundle: Bundle, case: Case) -> dict[str, Any] | None:
    """Return the near-tie at which the two continuations diverge; None if they are equal, or the method is approximate.

    Raise ProofError for a difference that the engine's own logits do not show to be a near-tie.
    """
    a, b = case.speculative.token_ids, case.autoregressive.token_ids
    index = first_difference(a, b)
    # Checked also for an engine that is not exact on this processor.
    may_differ = not case.speculative.exact and (bundle.exactness.exact or not bundle.manifest.exact)
    if index is None or may_differ:
        return None
    if index == min(len(a), len(b)):
        raise ProofError(f"{case.where}: speculative decoding gives {len(a)} new tokens, autoregressive {len(b)}")
    logits = next_logits(bundle, case.prompt_ids + a[:index], case.source)
    rules = TokenRules.of(bundle.manifest)
    largest = float(np.abs(logits).max())
    logits = logits if rules is None else rules.apply(logits, Written(index))
    margin, best = abs(float(logits[a[index]] - logits[b[index]])), int(logits.argmax())
    second, first = np.partition(logits, -2)[-2:]
    precision = rounding(bundle.entry)
    if best in (a[index], b[index]) and within_noise(margin, largest, precision):
        return {"prompt": case.number, "index": index, "tokens": [a[index], b[index]], "margin": f"{margin:.0e}"}
    raise ProofError(
        f"{case.where}: at new token {index} speculative decoding gives {a[index]}, autoregressive {b[index]}; "
        f"the margin between the two is {margin:.3g} (top-two margin {first - second:.3g})",
        hint="speculation changed the output: please report it with the recipe"
        if precision == "float32"
        else f"{precision} rounds too coarsely for this model, or speculation changed its output: try more bits",
    )


def next_logits(bundle: Bundle, tokens: Sequence[int], source: list[int] | None = None) -> Array:
    """Return float32 [V]: the engine's logits after `tokens`, computed in chunks from an empty cache. source: of a
    target with an encoder."""
    manifest, engine = bundle.manifest, bundle.engine
    if source is not None:
        bundle._loop.encode_source(0, as_heard(manifest, source))
    batch = (manifest.batch_size,)
    n_given, n_total, length = (engine.host_view(name, batch) for name in ("n_given", "n_total", "length"))
    n_given[:] = n_total[:] = length[:] = 0
    logits = engine.host_view("logits", (*batch, 1, manifest.vocabulary_size))
    for part in _groups(tokens, manifest.prefill_chunk):
        verify = engine.bind("verify", {"window": len(part), "logit_rows": 1, "history": 1, "allowed": 1}, ("logits",))
        engine.host_view("window", (*batch, len(part)))[0] = part
        n_given[0] = n_total[0] = len(part)
        verify()
        length[0] += len(part)
    found: Array = logits[0, 0].copy()
    return found


def engine_reference(bundle: Bundle, source: list[int] | None = None) -> Reference:
    """Return a reference: the engine's own logits of autoregressive decoding, and the filters in numpy. source: of all
    texts."""
    known: dict[tuple[int, ...], Array] = {}

    def after(texts: Sequence[Sequence[int]]) -> list[Array]:
        for text in map(tuple, texts):
            if text not in known:
                known[text] = next_logits(bundle, text, source)
        return [known[tuple(text)] for text in texts]

    return Reference("the engine's own logits", after)


def under_rules(reference: Reference, manifest: Manifest, prompt: int, hidden: Sequence[int] = ()) -> Reference:
    """Return a reference without the hidden tokens, which follows the rules of transcripts if the target has any.
    prompt: number of tokens of the prompt."""
    rules = TokenRules.of(manifest)

    def after(texts: Sequence[Sequence[int]]) -> list[Array]:
        found = [logits.copy() for logits in reference.logits(texts)]
        for logits in found:
            logits[list(hidden)] = -np.inf
        if rules is None:
            return found
        return [rules.apply(logits, Written(len(text) - prompt)) for text, logits in zip(texts, found, strict=True)]

    return replace(reference, logits=after)


def summary(cases: Sequence[Case], ties: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the proof's entry on the token level. Counts only: equal builds give equal proofs."""
    rounds = sum(case.speculative.rounds for case in cases)
    new = sum(len(case.speculative.token_ids) - 1 for case in cases if case.speculative.rounds)
    return {
        "prompts": len(cases),
        "new_tokens": sum(len(case.speculative.token_ids) for case in cases),
        "rounds": rounds,
        "mean_accepted": round(new / rounds, 3) if rounds else None,
        "equal": sum(case.speculative.token_ids == case.autoregressive.token_ids for case in cases),
        "near_ties": list(ties),
    }
