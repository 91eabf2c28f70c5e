"""Greedy backward elimination of attention and MLP sublayers: drop, one at a time, the sublayer without which the
predicted speed is highest.

`tune` chooses by the same speed: expected tokens (Leviathan et al. 2023, theorem 3.8) over measured seconds.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from speccompile.measure.bench.costs import expected_tokens
from speccompile.measure.elimination_rule import may_still_win
from speccompile.plan.layers import LayersPlan

Sublayers = frozenset[tuple[str, int]]
"""Set of sublayers, each ("attention" or "mlp", layer)."""
ATTENTION, MLP = "attention", "mlp"

Agree = Callable[[LayersPlan], Sequence[float]]
"""Function from layers to the share of places at which the drafts up to depth 1, 2, .. are all correct."""


def plan_of(halves: Sublayers) -> LayersPlan:
    """Return the sublayers as a plan's layers."""
    attention, mlp = (tuple(sorted(layer for its, layer in halves if its == kind)) for kind in (ATTENTION, MLP))
    return LayersPlan(attention, mlp)


def halves_of(layers: LayersPlan) -> Sublayers:
    """Return a plan's layers as a set of sublayers."""
    return frozenset((kind, layer) for kind in (ATTENTION, MLP) for layer in getattr(layers, kind))


@dataclass(frozen=True)
class PassCosts:
    """Costs in seconds. base: one draft pass without any layer; attention, mlp: added by one sublayer, mean over the
    layers; verify: by window width; host: one round outside its graphs."""

    base: float
    attention: float
    mlp: float
    verify: Mapping[int, float]
    host: float

    def round_seconds(self, halves: Sublayers, drafts: int) -> float:
        """Return the cost of a round with a chain of `drafts` tokens, one pass per token."""
        attention = sum(kind == ATTENTION for kind, _ in halves)
        a_pass = self.base + attention * self.attention + (len(halves) - attention) * self.mlp
        return self.verify[drafts + 1] + drafts * a_pass + self.host

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"verify": [self.verify[width] for width in sorted(self.verify)]}


@dataclass(frozen=True)
class ScoredLayers:
    """Set of layers, and the fastest chain with it."""

    layers: LayersPlan
    accepted_at_depth: tuple[float, ...]
    drafts: int
    tokens_per_second: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"layers": self.layers.to_json()}


class Elimination:
    """Greedy backward elimination, then hill climbing: single sublayers go in or out of the best set while that helps.

    The elimination is lazy (Minoux 1978). It evaluates a sublayer again only when its last known value makes it the
    best one to drop, so that most rounds evaluate a few sets, not all.
    """

    def __init__(
        self,
        agree: Agree,
        costs: PassCosts,
        units: Iterable[Sublayers],
        drafts: Sequence[int],
        has_time: Callable[[], bool],
    ) -> None:
        """units: sublayers that are dropped together: single ones, or whole layers. drafts: possible chain lengths,
        ascending. has_time: checked before every evaluation except the first two, of the whole and the recipe's set."""
        self._agree, self._costs, self._units = agree, costs, list(units)
        self._drafts, self._has_time = drafts, has_time
        self.judged: dict[Sublayers, ScoredLayers] = {}
        self.complete = False
        """True if the search ended before its time did."""

    def run(self, own: LayersPlan) -> ScoredLayers:
        """Search and return the best evaluated set. own: the recipe's layers, which are evaluated, too."""
        whole = frozenset[tuple[str, int]]().union(*self._units)
        self._judge(whole)
        self._judge(halves_of(own))
        self._eliminate(whole)
        self.complete = self._climb() and self.complete
        return self._best

    @property
    def _best(self) -> ScoredLayers:
        """Return the best evaluated set; of equals, the one with fewer sublayers."""
        return max(self.judged.values(), key=lambda each: (each.tokens_per_second, -each.layers.halves))

    def _eliminate(self, left: Sublayers) -> None:
        last_seen: dict[Sublayers, Sequence[float]] = dict.fromkeys(self._units, self.judged[left].accepted_at_depth)
        while len(last_seen) > 1 and self._may_still_win(left):
            unit = self._least(left, last_seen)
            if unit is None:
                return
            left -= unit
            del last_seen[unit]
        self.complete = True

    def _least(self, left: Sublayers, last_seen: dict[Sublayers, Sequence[float]]) -> Sublayers | None:
        """Return the unit whose removal gives the highest speed, or None if time is up. Update `last_seen`."""
        fresh = set[Sublayers]()
        while True:
            unit = max(last_seen, key=lambda each: self._rate(left - each, last_seen[each])[0])
            if unit in fresh:
                return unit
            if not self._has_time():
                return None
            last_seen[unit] = self._judge(left - unit).accepted_at_depth
            fresh.add(unit)

    def _climb(self) -> bool:
        """Toggle single units of the best set while that helps. Return whether time sufficed."""
        start, last = None, self._best
        while start != last:
            start = last
            for unit in self._units:
                changed = halves_of(last.layers) ^ unit
                if not changed or changed in self.judged:
                    continue
                if not self._has_time():
                    return False
                last = max(last, self._judge(changed), key=lambda each: each.tokens_per_second)
        return True

    def _may_still_win(self, left: Sublayers) -> bool:
        """Return whether a subset could still win: with this acceptance and layers of no cost it beats the best."""
        accepted = self.judged[left].accepted_at_depth
        return may_still_win(self._rate(frozenset(), accepted)[0], self._best.tokens_per_second)

    def _judge(self, halves: Sublayers) -> ScoredLayers:
        if halves not in self.judged:
            accepted = tuple(self._agree(plan_of(halves)))
            rate, drafts = self._rate(halves, accepted)
            self.judged[halves] = ScoredLayers(plan_of(halves), accepted, drafts, rate)
        return self.judged[halves]

    def _rate(self, halves: Sublayers, accepted: Sequence[float]) -> tuple[float, int]:
        """Return the expected tokens per second of the best chain, and its drafts; of equals the shorter chain."""
        rates = [
            (expected_tokens(accepted[:drafts]) / self._costs.round_seconds(halves, drafts), -drafts)
            for drafts in self._drafts
        ]
        rate, drafts = max(rates)
        return rate, -drafts
