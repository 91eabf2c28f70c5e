"""Which halves of a target's layers draft best: those without which a round gains least are left out, one by one.

What a round gains is what `tune` chooses by: expected tokens (Leviathan et al. 2023, theorem 3.8) over measured
seconds.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from speccompile.measure.bench.costs import expected_tokens
from speccompile.plan.plan import LayersPlan

Sublayers = frozenset[tuple[str, int]]
"""("attention" or "mlp", layer) of each."""
ATTENTION, MLP = "attention", "mlp"

Agree = Callable[[LayersPlan], Sequence[float]]
"""How often drafts of these layers are right, and all before them, at depth 1, 2, .."""


def plan_of(halves: Sublayers) -> LayersPlan:
    """As a plan has them."""
    attention, mlp = (tuple(sorted(layer for its, layer in halves if its == kind)) for kind in (ATTENTION, MLP))
    return LayersPlan(attention, mlp)


def halves_of(layers: LayersPlan) -> Sublayers:
    """As they are left out."""
    return frozenset((kind, layer) for kind in (ATTENTION, MLP) for layer in getattr(layers, kind))


@dataclass(frozen=True)
class PassCosts:
    """Seconds. base: of one pass of a draft without any layer; attention, mlp: what one half adds, the mean over the
    layers; verify: of a window by its width; host: of a round beside its graphs."""

    base: float
    attention: float
    mlp: float
    verify: Mapping[int, float]
    host: float

    def round_seconds(self, halves: Sublayers, drafts: int) -> float:
        """A round with a chain of `drafts`: one pass each."""
        attention = sum(kind == ATTENTION for kind, _ in halves)
        a_pass = self.base + attention * self.attention + (len(halves) - attention) * self.mlp
        return self.verify[drafts + 1] + drafts * a_pass + self.host

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"verify": [self.verify[width] for width in sorted(self.verify)]}


@dataclass(frozen=True)
class ScoredLayers:
    """A set of layers, and the chain that is best with it."""

    layers: LayersPlan
    accepted_at_depth: tuple[float, ...]
    drafts: int
    tokens_per_second: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"layers": self.layers.to_json()}


class Elimination:
    """Greedy backward elimination, then single halves back in or out of the best set, as long as that is better.

    A half that was worth much when more was left is looked at again only when nothing seems to be worth less (the lazy
    greedy of Minoux 1978): most rounds then judge a few sets, not all.
    """

    def __init__(
        self,
        agree: Agree,
        costs: PassCosts,
        units: Iterable[Sublayers],
        drafts: Sequence[int],
        has_time: Callable[[], bool],
    ) -> None:
        """units: what is left out together: a half each, or whole layers. drafts: chains that may be had, the shortest
        first. has_time: asked before every judgement but the first ones of the whole."""
        self._agree, self._costs, self._units = agree, costs, list(units)
        self._drafts, self._has_time = drafts, has_time
        self.judged: dict[Sublayers, ScoredLayers] = {}
        self.complete = False
        """Whether it ended by itself, not for lack of time."""

    def run(self, own: LayersPlan) -> ScoredLayers:
        """The best set that was judged. own: the recipe's, which is one of them."""
        whole = frozenset[tuple[str, int]]().union(*self._units)
        self._judge(whole)
        self._judge(halves_of(own))
        self._eliminate(whole)
        self.complete = self._climb() and self.complete
        return self._best

    @property
    def _best(self) -> ScoredLayers:
        """Of equals, that with fewer halves."""
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
        """The unit without which most is gained; None where time is up. What was judged stands in `last_seen`."""
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
        """Single units in or out of the best set while that gains; returns whether time was enough."""
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
        """Whether the best known would be beaten if all that is left cost nothing, and were as often right."""
        accepted = self.judged[left].accepted_at_depth
        return self._rate(frozenset(), accepted)[0] > self._best.tokens_per_second

    def _judge(self, halves: Sublayers) -> ScoredLayers:
        if halves not in self.judged:
            accepted = tuple(self._agree(plan_of(halves)))
            rate, drafts = self._rate(halves, accepted)
            self.judged[halves] = ScoredLayers(plan_of(halves), accepted, drafts, rate)
        return self.judged[halves]

    def _rate(self, halves: Sublayers, accepted: Sequence[float]) -> tuple[float, int]:
        """Expected tokens per second of the best chain, and its drafts; of equals the shorter."""
        rates = [
            (expected_tokens(accepted[:drafts]) / self._costs.round_seconds(halves, drafts), -drafts)
            for drafts in self._drafts
        ]
        rate, drafts = max(rates)
        return rate, -drafts
