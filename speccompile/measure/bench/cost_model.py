"""What measured costs allow: the cost curve, where speculation breaks even, and how near to it the runs came."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from speccompile.bundle.manifest import Manifest
from speccompile.measure.bench.costs import GraphCosts, allows_any_width, break_even, expected_tokens
from speccompile.measure.bench.mode import known_median
from speccompile.runtime import Generation

_HALVINGS = 50


@dataclass(frozen=True)
class CurvePoint:
    """One run of `verify` over a window of this width: its median, and over that of a window of one."""

    width: int
    seconds: float
    ratio: float


@dataclass(frozen=True)
class BreakEven:
    """Where speculation with this window is as fast as without.

    mean_accepted: new tokens per round, the bonus token included. acceptance_rate: the chance of every draft of a chain
    that gives as many; None where not even accepting all of them does, or for trees.
    """

    width: int
    mean_accepted: float
    acceptance_rate: float | None


@dataclass(frozen=True)
class CostModel:
    """The costs of a round, in seconds, over `context` committed tokens, and what follows. Without a drafter, and where
    no generation had a round, the last three are None.

    allowed_tokens_per_second: without prefill, had every round taken what a round of its width costs by itself.
    reached: what the runs had of it. Both are medians over the generations.
    """

    context: int
    verify: tuple[CurvePoint, ...]
    draft_seconds: float | None
    host_seconds: float
    break_even: BreakEven | None
    allowed_tokens_per_second: float | None
    reached: float | None

    def break_even_at(self, point: CurvePoint) -> float:
        """The mean accepted at which rounds of another width would be as fast as without speculation."""
        draft = self.draft_seconds if point.width > 1 and self.draft_seconds is not None else 0.0
        return (point.seconds + draft + self.host_seconds) / (self.verify[0].seconds + self.host_seconds)


def make_budget(costs: GraphCosts, context: int, manifest: Manifest, runs: Sequence[Generation]) -> CostModel:
    """costs: with width 1 and the decoding width. runs: all speculative generations, none without a drafter."""
    curve = tuple(
        CurvePoint(width, costs.verify[width], costs.verify[width] / costs.verify[1]) for width in costs.verify
    )
    with_rounds = [one for one in runs if one.rounds]
    least = [sum(_round_seconds(costs, manifest, drafts) for drafts in one.draft_lengths) for one in with_rounds]
    allowed = known_median((len(one.token_ids) - 1) / seconds for one, seconds in zip(with_rounds, least, strict=True))
    spent = (one.seconds - one.prefill_seconds for one in with_rounds)
    reached = known_median(needed / seconds for needed, seconds in zip(least, spent, strict=True))
    even = _break_even(costs, manifest) if manifest.tokens else None
    return CostModel(context, curve, costs.draft, costs.host, even, allowed, reached)


def acceptance_rate(mean_accepted: float, drafts: int) -> float | None:
    """The acceptance rate alpha at which a chain of so many drafts gives this mean: the inverse of Leviathan et al.
    2023, equation 1. None where no rate up to 1 does."""

    def mean(alpha: float) -> float:
        return expected_tokens([alpha**depth for depth in range(1, drafts + 1)])

    if mean_accepted > mean(1):
        return None
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if mean(middle) < mean_accepted else (low, middle)
    return high


def _round_seconds(costs: GraphCosts, manifest: Manifest, drafts: int) -> float:
    """A round that verifies so many drafts, by itself: in its own width, or the next wider one that was measured. That
    of decoding where that is the only one, see `any_width`."""
    width = drafts + 1 if allows_any_width(manifest) or not drafts else manifest.tokens + 1
    measured = sorted(costs.verify)
    return costs.round_seconds(measured[bisect_left(measured, width)])


def _break_even(costs: GraphCosts, manifest: Manifest) -> BreakEven:
    width = manifest.tokens + 1
    mean = break_even(costs, width)
    return BreakEven(width, mean, acceptance_rate(mean, manifest.tokens) if manifest.tree == "chain" else None)
