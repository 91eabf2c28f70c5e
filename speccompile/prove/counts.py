"""What was drawn, counted beside what the target's own probabilities let expect. No torch."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from speccompile.prove.chi_square import SMALLEST
from speccompile.prove.filters import Floats, Reference
from speccompile.runtime import Generation
from speccompile.runtime.options import Sampling

CONTEXTS = 8
"""First tokens after which the second is told apart."""


@dataclass(frozen=True)
class Drawn:
    """Generations from one prompt, and the settings that they were drawn with."""

    prompt: list[int]
    sampling: Sampling
    generations: list[Generation]


@dataclass(frozen=True)
class Counts:
    """Of some tokens, observed and expected, float64 [cells]; `name` of a cell. outside: the tokens among
    them that no rounding lets through the filters."""

    tokens: str
    observed: Floats
    expected: Floats
    name: Callable[[int], str]
    outside: list[int]


def first(drawn: Drawn, reference: Reference) -> Counts:
    """The first new token: what the prefill draws."""
    tokens = [each.token_ids[0] for each in drawn.generations]
    probabilities = reference.probabilities(drawn.prompt, drawn.sampling)
    observed, outside = _counted(tokens, len(probabilities)), _outside(drawn, reference, drawn.prompt, tokens)
    return Counts("first", observed, len(tokens) * probabilities, _token, outside)


def first_two(drawn: Drawn, reference: Reference, ends: Sequence[int]) -> Counts:
    """The first and the second together, p(x1) p(x2 | x1), for the most probable x1; everything else is one cell.

    ends: tokens that end a generation, behind which there is no second.
    """
    count, prompt, sampling = len(drawn.generations), drawn.prompt, drawn.sampling
    begin = reference.probabilities(prompt, sampling)
    best = np.argsort(-begin, kind="stable")[: CONTEXTS + len(ends)].tolist()
    likely = [token for token in best if token not in ends and count * begin[token] >= SMALLEST][:CONTEXTS]
    observed, expected, outside = list[Floats](), list[Floats](), list[int]()
    for token in likely:
        context = [*prompt, token]
        after = [each.token_ids[1] for each in drawn.generations if each.token_ids[0] == token]
        outside += _outside(drawn, reference, context, after)
        observed.append(_counted(after, len(begin)))
        expected.append(count * begin[token] * reference.probabilities(context, sampling))
    seen, wanted = (_with_rest(counts, count) for counts in (observed, expected))

    def name(cell: int) -> str:
        place, second = divmod(cell, len(begin))
        return f"tokens {likely[place]}, {second}" if place < len(likely) else "all others"

    return Counts("first two", seen, wanted, name, outside)


def behind_full_paths(drawn: Drawn, reference: Reference, depth: int) -> Counts | None:
    """The bonus token of rounds in which a path of `depth` drafts was accepted; None where there was none.

    Each stands in a context of its own, so what is counted is how probable it was there: the most probable token, the
    second, .. Counts of samples that have different distributions vary less than those of samples from their mean, so
    that the p-value is rather too large.
    """
    ranks, expected, outside = list[int](), list[Floats](), list[int]()
    for context, token in full_paths(drawn, depth):
        probabilities = reference.probabilities(context, drawn.sampling)
        order = np.argsort(-probabilities, kind="stable")
        ranks.append(int((order == token).argmax()))
        expected.append(probabilities[order])
        outside += _outside(drawn, reference, context, [token])
    if not ranks:
        return None
    wanted: Floats = np.sum(expected, 0)
    return Counts(
        "behind a whole path", _counted(ranks, len(wanted)), wanted, lambda cell: f"the {cell + 1}. best token", outside
    )


def full_paths(drawn: Drawn, depth: int) -> Iterator[tuple[list[int], int]]:
    """The bonus token behind `depth` accepted drafts, after the tokens before it."""
    for each in drawn.generations:
        end = 1  # the prefill's token
        for length in each.path_lengths:
            end += length
            if length == depth + 1 and end <= len(each.token_ids):
                yield drawn.prompt + each.token_ids[: end - 1], each.token_ids[end - 1]


def _outside(drawn: Drawn, reference: Reference, context: Sequence[int], tokens: Sequence[int]) -> list[int]:
    possible = reference.possible(context, drawn.sampling)
    return [token for token in tokens if not possible[token]]


def _counted(tokens: Sequence[int], size: int) -> Floats:
    return np.bincount(np.array(tokens, np.int64), minlength=size).astype(np.float64)


def _with_rest(counts: Sequence[Floats], total: int) -> Floats:
    rest = max(0.0, total - sum(float(each.sum()) for each in counts))
    return np.concatenate([*counts, [rest]])


def _token(cell: int) -> str:
    return f"token {cell}"
