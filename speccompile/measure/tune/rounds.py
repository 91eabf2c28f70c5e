"""Rounds of generations: convert those of a long chain to a shorter one, and price them with measured costs."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from speccompile.bundle.manifest import Manifest
from speccompile.measure.bench.costs import GraphCosts, allows_any_width
from speccompile.runtime import Generation


@dataclass(frozen=True)
class Rounds:
    """Rounds of one generation after its prefill: verified and accepted drafts of every round."""

    new_tokens: int
    """Number of tokens from the rounds, cut at the end of the generation."""
    drafts: tuple[int, ...]
    accepted: tuple[int, ...]


def rounds_of(generation: Generation) -> Rounds:
    """Return the rounds of a generation; none if it ended in its prefill."""
    accepted = tuple(length - 1 for length in generation.path_lengths)
    return Rounds(len(generation.token_ids) - 1, tuple(generation.draft_lengths), accepted)


def shortened(rounds: Rounds, most: int, drafts: int) -> Rounds:
    """Return the rounds that a chain of `drafts` would have, from the rounds of a chain of `most`.

    A draft token depends only on the text before it, not on its round. So the drafter predicts each token of the text
    correctly or not, and the rounds show which. Unknown are tokens after `most` accepted drafts; they count as correct.
    The result is exact for greedy drafter and target. With sampling, and for lookup drafters that rank matches, it is
    an estimate.
    """
    guessed: list[bool] = []
    offered: list[int] = []
    for drafted, accepted in zip(rounds.drafts, rounds.accepted, strict=True):
        guessed += [True] * accepted + [accepted == most]
        offered += [most if drafted == most else max(0, drafted - later) for later in range(accepted + 1)]
    start, made, kept = 0, [], []
    while start < rounds.new_tokens:
        made.append(min(drafts, offered[start]))
        kept.append(sum(1 for _ in takewhile(bool, guessed[start : start + made[-1]])))
        start += kept[-1] + 1
    return Rounds(rounds.new_tokens, tuple(made), tuple(kept))


def accepted_at_depth(all_rounds: Sequence[Rounds], depth: int) -> tuple[float, ...]:
    """Return the share of all rounds that accept the draft at depth 1 to `depth`, the input of `expected_tokens`."""
    counts = [count for rounds in all_rounds for count in rounds.accepted]
    return tuple(sum(count >= wanted for count in counts) / len(counts) for wanted in range(1, depth + 1))


@dataclass(frozen=True)
class Windows:
    """Rule for the window width of a round. any_width: the window has a round's drafts and one token; else it always
    holds `tokens` drafts and one token, or one token without drafts."""

    tokens: int
    any_width: bool

    @classmethod
    def of(cls, manifest: Manifest) -> "Windows":
        return cls(manifest.tokens, allows_any_width(manifest))


def decode_seconds(rounds: Rounds, windows: Windows, costs: GraphCosts) -> float:
    """Return a generation's seconds without its prefill, which makes the first draft; the last round makes none."""
    widths = sorted(costs.verify)
    needed = [drafts + 1 if windows.any_width or not drafts else windows.tokens + 1 for drafts in rounds.drafts]
    verify = sum(costs.verify[widths[bisect_left(widths, width)]] for width in needed)
    drafting = (len(needed) - 1) * (costs.draft or 0.0)
    return verify + drafting + len(needed) * costs.host
