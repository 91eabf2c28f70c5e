"""Counts of sampled tokens, and their expectation by the target's own probabilities. No torch."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from speccompile.bundle.sampling import SamplingParams
from speccompile.compiler.prove.chi_square import SMALLEST
from speccompile.compiler.prove.filters import Expected, Floats, Reference
from speccompile.runtime import Generation

CONTEXTS = 8
"""Number of first tokens for which the second token is counted separately."""

MOST_TEXTS = 1000
"""Maximum number of texts, one for each sample, that the reference reads for one test."""


@dataclass(frozen=True)
class Drawn:
    """Generations from one prompt, and their sampling settings."""

    prompt: list[int]
    sampling: SamplingParams
    generations: list[Generation]


@dataclass(frozen=True)
class Counts:
    """Counts of some tokens, observed and expected, float64 [cells]; `name` of a cell. outside: tokens that no rounding
    lets through the filters."""

    tokens: str
    observed: Floats
    expected: Floats
    name: Callable[[int], str]
    impossible: list[int]


def first(drawn: Drawn, reference: Reference) -> Counts:
    """Count the first new token, which the prefill draws."""
    (expected,) = reference.expected([drawn.prompt], drawn.sampling)
    tokens = [each.token_ids[0] for each in drawn.generations]
    observed = _counted(tokens, len(expected.probabilities))
    return Counts("first", observed, len(tokens) * expected.probabilities, _token, _outside(tokens, expected))


def first_two(drawn: Drawn, reference: Reference, ends: Sequence[int]) -> Counts:
    """Count the first and the second token together, p(x1) p(x2 | x1), for the most probable x1; all other pairs are
    one cell.

    ends: tokens that end a generation, after which there is no second.
    """
    count = len(drawn.generations)
    begin = reference.expected([drawn.prompt], drawn.sampling)[0].probabilities
    best = np.argsort(-begin, kind="stable")[: CONTEXTS + len(ends)].tolist()
    likely = [token for token in best if token not in ends and count * begin[token] >= SMALLEST][:CONTEXTS]
    observed, wanted, outside = list[Floats](), list[Floats](), list[int]()
    texts = [[*drawn.prompt, token] for token in likely]
    for token, expected in zip(likely, reference.expected(texts, drawn.sampling), strict=True):
        after = [each.token_ids[1] for each in drawn.generations if each.token_ids[0] == token]
        observed.append(_counted(after, len(begin)))
        wanted.append(count * begin[token] * expected.probabilities)
        outside += _outside(after, expected)

    def name(cell: int) -> str:
        place, second = divmod(cell, len(begin))
        return f"tokens {likely[place]}, {second}" if place < len(likely) else "all others"

    return Counts("first two", _with_rest(observed, count), _with_rest(wanted, count), name, outside)


def bonus_after_full_acceptance(drawn: Drawn, reference: Reference, depth: int) -> Counts | None:
    """Count the bonus token of rounds in which a path of `depth` drafts was accepted; None if there was no such round.

    Each follows another text, so the cells are its rank there: the most probable token, the second, .. Counts of
    samples with different distributions vary less than those of samples from their mean, so the p-value is rather too
    large.
    """
    found = list(islice(full_paths(drawn, depth), MOST_TEXTS))
    if not found:
        return None
    ranks, wanted, outside = list[int](), list[Floats](), list[int]()
    all_expected = reference.expected([text for text, _ in found], drawn.sampling)
    for (_, token), expected in zip(found, all_expected, strict=True):
        order = np.argsort(-expected.probabilities, kind="stable")
        ranks.append(int((order == token).argmax()))
        wanted.append(expected.probabilities[order])
        outside += _outside([token], expected)
    total: Floats = np.sum(wanted, 0)
    return Counts(
        "behind a whole path", _counted(ranks, len(total)), total, lambda cell: f"the {cell + 1}. best token", outside
    )


def full_paths(drawn: Drawn, depth: int) -> Iterator[tuple[list[int], int]]:
    """Yield (tokens before it, bonus token) for each bonus token after `depth` accepted drafts."""
    for each in drawn.generations:
        end = 1  # the prefill's token
        for length in each.path_lengths:
            end += length
            if length == depth + 1 and end <= len(each.token_ids):
                yield drawn.prompt + each.token_ids[: end - 1], each.token_ids[end - 1]


def _outside(tokens: Sequence[int], expected: Expected) -> list[int]:
    return [token for token in tokens if not expected.possible[token]]


def _counted(tokens: Sequence[int], size: int) -> Floats:
    return np.bincount(np.array(tokens, np.int64), minlength=size).astype(np.float64)


def _with_rest(counts: Sequence[Floats], total: int) -> Floats:
    rest = max(0.0, total - sum(float(each.sum()) for each in counts))
    return np.concatenate([*counts, [rest]])


def _token(cell: int) -> str:
    return f"token {cell}"
