"""What generations say of shorter chains than those they ran with, and how long they take by measured costs."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from speccompile.bundle.manifest import Manifest
from speccompile.measure.bench.costs import GraphCosts, allows_any_width
from speccompile.runtime import Generation


@dataclass(frozen=True)
class Rounds:
    """One generation behind its prefill: of every round how many drafts it verified, and how many it accepted."""

    new_tokens: int
    """That the rounds gave, the end of the generation having cut off what came after it."""
    drafts: tuple[int, ...]
    accepted: tuple[int, ...]


def rounds_of(generation: Generation) -> Rounds:
    """A generation that ended in its prefill has none."""
    accepted = tuple(length - 1 for length in generation.path_lengths)
    return Rounds(len(generation.token_ids) - 1, tuple(generation.draft_lengths), accepted)


def shortened(rounds: Rounds, most: int, drafts: int) -> Rounds:
    """The rounds of a chain of `drafts`, from those of one of `most`.

    A draft depends on the text before it alone, whichever round makes it: so each token of the text is one that the
    drafter would have guessed or not, and the rounds say which, but for those behind `most` accepted drafts, which are
    taken to be guessed. That is exact where drafter and target are certain; where they draw, and for drafters that look
    for the best place in the text, it is an estimate.
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
    """Share of all rounds that accept the draft at depth 1, 2, .. `depth`: what `bench.costs.expected_tokens` takes."""
    counts = [count for rounds in all_rounds for count in rounds.accepted]
    return tuple(sum(count >= wanted for count in counts) / len(counts) for wanted in range(1, depth + 1))


@dataclass(frozen=True)
class Windows:
    """What decides how long rounds take, beside their costs. any_width: windows are as wide as there are drafts; else
    as wide as `tokens`, or one where there are no drafts."""

    tokens: int
    any_width: bool

    @classmethod
    def of(cls, manifest: Manifest) -> "Windows":
        return cls(manifest.tokens, allows_any_width(manifest))


def decode_seconds(rounds: Rounds, windows: Windows, costs: GraphCosts) -> float:
    """Seconds of a generation without its prefill, which makes the first draft; the last round makes none."""
    widths = sorted(costs.verify)
    needed = [drafts + 1 if windows.any_width or not drafts else windows.tokens + 1 for drafts in rounds.drafts]
    verify = sum(costs.verify[widths[bisect_left(widths, width)]] for width in needed)
    drafting = (len(needed) - 1) * (costs.draft or 0.0)
    return verify + drafting + len(needed) * costs.host
