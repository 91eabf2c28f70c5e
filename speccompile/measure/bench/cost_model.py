"""Cost model of a round: the cost curve, the break-even acceptance length, and the speed that the costs allow."""

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
    """Median time of one `verify` over a window of this width, and its ratio to a window of one token."""

    width: int
    seconds: float
    ratio: float


@dataclass(frozen=True)
class BreakEven:
    """Point at which speculation with this window is as fast as autoregressive decoding.

    mean_accepted: acceptance length, bonus token included. acceptance_rate: the probability that a draft of a chain is
    accepted at this length; None for trees, and if even accepting all drafts falls short.
    """

    width: int
    mean_accepted: float
    acceptance_rate: float | None


@dataclass(frozen=True)
class CostModel:
    """Costs of a round in seconds, over `context` committed tokens, and the speed that they allow.

    allowed_tokens_per_second: speed without prefill if every round took its measured cost. reached: share of it that
    the runs reached. Both are medians over the generations, and None if no generation had a round. Without a drafter
    the last three fields are None.
    """

    context: int
    verify: tuple[CurvePoint, ...]
    draft_seconds: float | None
    host_seconds: float
    break_even: BreakEven | None
    allowed_tokens_per_second: float | None
    reached: float | None

    def break_even_at(self, point: CurvePoint) -> float:
        """Return the break-even acceptance length for rounds of another width."""
        draft = self.draft_seconds if point.width > 1 and self.draft_seconds is not None else 0.0
        return (point.seconds + draft + self.host_seconds) / (self.verify[0].seconds + self.host_seconds)


def make_budget(costs: GraphCosts, context: int, manifest: Manifest, runs: Sequence[Generation]) -> CostModel:
    """Return the cost model. costs: must cover width 1 and the decoding width. runs: all speculative generations."""
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
    """Return the acceptance rate alpha at which a chain of `drafts` tokens has this acceptance length, or None if even
    a rate of 1 does not reach it. It inverts equation 1 of Leviathan et al. 2023."""

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
    """Return the cost of a round that verifies this number of drafts, at the next measured width that holds them.

    It is the decoding width if a bundle has no other, see `allows_any_width`."""
    width = drafts + 1 if allows_any_width(manifest) or not drafts else manifest.tokens + 1
    measured = sorted(costs.verify)
    return costs.round_seconds(measured[bisect_left(measured, width)])


def _break_even(costs: GraphCosts, manifest: Manifest) -> BreakEven:
    width = manifest.tokens + 1
    mean = break_even(costs, width)
    return BreakEven(width, mean, acceptance_rate(mean, manifest.tokens) if manifest.tree == "chain" else None)
