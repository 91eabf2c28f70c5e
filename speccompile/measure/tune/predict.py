"""Predict the tokens per second of every candidate from measured costs and acceptance, and choose the best.

Leviathan et al. 2023, theorem 3.8, with measured times: a round gives 1 + sum(a_d) tokens, a_d the share of rounds that
accept the draft at depth d, and takes verify(width) + draft + host seconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import Any

from speccompile.measure.bench.costs import GraphCosts, expected_tokens
from speccompile.measure.bench.measure import host_seconds
from speccompile.measure.bench.mode import decode_rate
from speccompile.measure.tune.rounds import Rounds, Windows, accepted_at_depth, decode_seconds
from speccompile.runtime import Generation

NONE = "none"


@dataclass(frozen=True)
class Candidate:
    """Candidate for a choice. Times are seconds per round: `verify_seconds` at `width`; `draft_seconds` is None without
    a drafter, or if it is fused with the target."""

    drafter: str
    """Label of the draft shape, or "none"."""
    drafts: int
    depth: int
    width: int
    """Window width: the drafts and the token before them."""
    catch_up: int
    """Number of tokens that the drafter catches up on in a round, which its kind and shape decide."""
    precision: str | None
    """Precision of the drafter's weights; None for a drafter without weights."""
    threads: int
    accepted_at_depth: tuple[float, ...]
    verify_seconds: float
    draft_seconds: float | None
    host_seconds: float
    tokens_per_second: float
    """Expected speed of a generation without prefill: the median over the prompts, as in `bench`."""
    settings: tuple[str, ...]
    """KEY=VALUE settings of the recipe."""

    @property
    def mean_accepted(self) -> float:
        """Return the expected acceptance length, bonus token included."""
        return expected_tokens(self.accepted_at_depth)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"mean_accepted": self.mean_accepted}


def speculative(
    drafter: str,
    windows: Windows,
    costs: GraphCosts,
    all_rounds: Sequence[Rounds],
    *,
    depth: int,
    catch_up: int,
    precision: str | None,
    threads: int,
    settings: tuple[str, ...],
) -> Candidate:
    """Return the prediction for one draft shape. all_rounds: of every prompt that has rounds."""
    return Candidate(
        drafter, windows.tokens, depth, windows.tokens + 1, catch_up, precision, threads,
        accepted_at_depth=accepted_at_depth(all_rounds, depth),
        verify_seconds=costs.verify[windows.tokens + 1],
        draft_seconds=costs.draft,
        host_seconds=costs.host,
        tokens_per_second=median(each.new_tokens / decode_seconds(each, windows, costs) for each in all_rounds),
        settings=settings,
    )  # fmt: skip


def autoregressive(generations: Sequence[Generation], threads: int, settings: tuple[str, ...]) -> Candidate:
    """Return the candidate without a drafter, from measured generations, not from `costs`: consecutive graphs of width
    one have warmer processor caches than between wider ones. generations: autoregressive, with rounds."""
    return Candidate(
        NONE, 0, 0, 1, 0, None, threads,
        accepted_at_depth=(),
        verify_seconds=median(one.verify_seconds / one.rounds for one in generations),
        draft_seconds=None,
        host_seconds=median(host_seconds(one) / one.rounds for one in generations),
        tokens_per_second=median(filter(None, map(decode_rate, generations))),
        settings=settings,
    )  # fmt: skip


@dataclass(frozen=True)
class LinearCost:
    """Seconds of a draft of K tokens, base + slope * K: an unrolled chain takes one pass per token."""

    base: float
    slope: float

    def at(self, drafts: int) -> float:
        return self.base + self.slope * drafts


def fit(points: Mapping[int, float]) -> LinearCost:
    """Return the line through the seconds of the least and the greatest number of drafts; a flat one for one point."""
    (first, base), (last, top) = min(points.items()), max(points.items())
    slope = (top - base) / (last - first) if last > first else 0.0
    return LinearCost(base - slope * first, slope)


def fit_draft_cost(measured: Mapping[int, GraphCosts], *, fused: bool) -> LinearCost | None:
    """Fit the drafter's cost to the shortest and the longest chain. measured: number of drafts -> costs.

    A fused step counts as verification: its draft cost is the excess over the other bundle's `verify` of the same
    width. A single fused bundle gives None: there is nothing to subtract.
    """
    if not fused:
        return fit({drafts: costs.draft or 0.0 for drafts, costs in measured.items()})
    if len(measured) == 1:
        return None
    steps = {drafts: costs.verify[drafts + 1] for drafts, costs in measured.items()}
    return fit({drafts: seconds - _verify(measured, drafts + 1, fused) for drafts, seconds in steps.items()})


def chain_costs(measured: Mapping[int, GraphCosts], drafts: int, *, fused: bool) -> GraphCosts:
    """Return the costs of a chain of `drafts` tokens, interpolated. measured: number of drafts -> costs.

    A fused bundle that was measured keeps its own costs.
    """
    if fused and drafts in measured:
        return measured[drafts]
    line = fit_draft_cost(measured, fused=fused)
    assert line is not None, "a chain that was not measured lies between two that were"
    widths = [width for width in max(measured.items())[1].verify if width <= drafts + 1]
    verify = {width: _verify(measured, width, fused) for width in widths}
    host = fmean(costs.host for costs in measured.values())
    if fused:
        verify[drafts + 1] += line.at(drafts)
    return GraphCosts(verify, None if fused else line.at(drafts), host)


def _verify(measured: Mapping[int, GraphCosts], width: int, fused: bool) -> float:
    """Return the mean cost of the target alone at this width: all bundles have the same graph."""
    return fmean(
        costs.verify[width]
        for drafts, costs in measured.items()
        if width in costs.verify and not (fused and width == drafts + 1)
    )


def choose(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Sort the candidates, the fastest first; of equals, fewer drafts first, then fewer threads."""
    return sorted(candidates, key=lambda each: (-each.tokens_per_second, each.drafts, each.threads))
