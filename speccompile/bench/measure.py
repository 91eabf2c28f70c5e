"""The runs: every prompt both ways, one right after the other, so that a busy moment of the machine meets both."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from speccompile.errors import PromptError, UsageError
from speccompile.progress import step
from speccompile.runtime import Bundle, Generation, first_difference
from speccompile.runtime.bundle import Prompt


@dataclass(frozen=True)
class Difference:
    """The first new token that the two ways do not share; None for a way that has ended before."""

    prompt: int
    index: int
    speculative: int | None
    autoregressive: int | None


@dataclass(frozen=True)
class Case:
    """One prompt, counted from 1, and its generations, one a repeat. `speculative` is empty without a drafter."""

    number: int
    speculative: tuple[Generation, ...]
    autoregressive: tuple[Generation, ...]

    def difference(self) -> Difference | None:
        """Where speculation first changed the tokens, None when it never did."""
        for ours, theirs in zip(self.speculative, self.autoregressive, strict=bool(self.speculative)):
            a, b = ours.token_ids, theirs.token_ids
            if (index := first_difference(a, b)) is not None:
                return Difference(self.number, index, _at(a, index), _at(b, index))
        return None


def measure(
    bundle: Bundle, prompts: Sequence[Prompt], *, max_new_tokens: int = 128, repeats: int = 3, **sampling: Any
) -> list[Case]:
    """Generate for every prompt, `repeats` times both ways, in alternating order, after a warm-up.

    A bundle without a drafter runs autoregressively only. sampling: options of `Bundle.generate_batch`; every
    generation has the same. Raises PromptError, with the prompt's number, for a prompt that the bundle cannot take, and
    UsageError for less than one repeat; both before any work.
    """
    options = {"max_new_tokens": max_new_tokens} | sampling
    if repeats < 1:
        raise UsageError(f"repeats is {repeats}: expected at least 1")
    all_ids = [_token_ids(bundle, prompt, number) for number, prompt in enumerate(prompts, 1)]
    with step("warm-up"):
        _run_both(bundle, all_ids[0], options)
    cases = []
    for number, ids in enumerate(all_ids, 1):
        with step(f"prompt {number} of {len(all_ids)}"):
            pairs = [_run_both(bundle, ids, options, turn=number + repeat) for repeat in range(repeats)]
            cases.append(Case(number, *(tuple(pair[way] for pair in pairs if way in pair) for way in (False, True))))
    return cases


def _token_ids(bundle: Bundle, prompt: Prompt, number: int) -> list[int]:
    try:
        return bundle.token_ids(prompt)
    except PromptError as error:
        raise PromptError(f"prompt {number}: {error}", hint=error.hint) from error


def _run_both(bundle: Bundle, ids: list[int], options: dict[str, Any], turn: int = 0) -> dict[bool, Generation]:
    """Generations by whether they are autoregressive. Odd turns run in the other order."""
    ways = [False, True] if bundle.speculative else [True]
    ordered = ways[::-1] if turn % 2 else ways
    return {way: bundle.generate(ids, autoregressive=way, **options) for way in ordered}


def _at(tokens: Sequence[int], index: int) -> int | None:
    return tokens[index] if index < len(tokens) else None
