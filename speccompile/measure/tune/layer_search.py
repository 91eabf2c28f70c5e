"""Search for the layers of a `layer_skip` drafter, by the target's own texts and the measured cost of its sublayers."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from time import perf_counter
from typing import TYPE_CHECKING, Any

from speccompile.drafters import DRAFTING_METHODS
from speccompile.measure.bench.costs import GraphCosts
from speccompile.measure.tune.elimination import ATTENTION, MLP, Elimination, PassCosts, ScoredLayers, halves_of
from speccompile.measure.tune.space import DraftShape
from speccompile.measure.tune.trial import TrialRequest, TrialRunner
from speccompile.plan.layers import LayersPlan
from speccompile.progress import log_step, progress_counter

if TYPE_CHECKING:
    from speccompile.compiler.build.layer_agreement import LayerAgreement

SEARCHED = [kind for kind, method in DRAFTING_METHODS.items() if "layers" in method.keys]
"""Kinds that draft with layers of the target."""
SECONDS = 120.0
"""Default duration of a search."""
MEASURED = 2
"""Draft length of the chains that time sublayers: every further draft is one more pass, which is slow to trace."""
PASSES = 4
"""Number of evaluations per sublayer that the time should allow: the elimination needed 3 on the demo."""


@dataclass(frozen=True)
class LayerSearch:
    """Result of a search. own: the recipe's layers. costs: with the thread count at which the target alone is fastest.
    blocks: text positions evaluated for each of the `judged` sets. complete: the search ended before its time did."""

    choice: ScoredLayers
    own: ScoredLayers
    costs: PassCosts
    threads: int
    blocks: int
    judged: int
    seconds: float
    complete: bool

    @property
    def setting(self) -> str:
        """Return the KEY=VALUE setting for the recipe."""
        return layers_setting(self.choice.layers)

    def to_json(self) -> dict[str, Any]:
        judged = {"choice": self.choice.to_json(), "own": self.own.to_json(), "costs": self.costs.to_json()}
        return asdict(self) | judged


def layers_setting(layers: LayersPlan) -> str:
    """Return the setting that makes the recipe's drafter use these layers."""
    return f"drafter.layers={json.dumps(layers.to_json())}"


def search_layers(trials: TrialRunner, shapes: Sequence[DraftShape], seconds: float) -> LayerSearch:
    """Build two or three bundles to measure the cost of layers, then search for at most `seconds`.

    shapes: possible draft shapes. Without chains, a chain as deep as the recipe's tree stands for the trees. Raise the
    errors of a build.
    """
    from speccompile.compiler.build.inputs import open_round  # imports torch
    from speccompile.compiler.build.layer_agreement import LayerAgreement, TargetText

    plan = trials.source.plan
    assert plan.drafter.layers is not None, "this kind has them"
    chains = sorted(shape.drafts for shape in shapes if shape.drafts) or [plan.drafter.tree.depth]
    count = plan.target.facts.layers
    assert count is not None, "the plan refuses layers of a target that does not say how many it has"
    measured = _Measured(trials, count, chains)
    whole = measured.costs(LayersPlan(*[tuple(range(count))] * 2))
    texts = [TargetText(*each) for each in trials.texts if len(each[1]) - each[0] > 1]
    whole_round, share = open_round(plan), seconds / (PASSES * 2 * count)
    agreement = LayerAgreement(whole_round.target, whole_round.shape, texts, chains[-1], share, measured.threads)
    costs = measured.halves(whole) if agreement.has_halves else measured.layers(whole)
    drafts = [each for each in chains if each <= agreement.depth] or chains[:1]
    begun = perf_counter()
    with (
        log_step("searching which layers draft"),
        progress_counter("searching which layers draft", seconds, "s") as advance,
    ):

        def agree(layers: LayersPlan) -> Sequence[float]:
            start = perf_counter()
            found = agreement(layers)
            advance(perf_counter() - start)
            return found

        search = Elimination(agree, costs, _units(count, agreement), drafts, lambda: perf_counter() - begun < seconds)
        choice = search.run(plan.drafter.layers)
    own = search.judged[halves_of(plan.drafter.layers)]
    return LayerSearch(
        choice, own, costs, measured.threads, agreement.blocks, len(search.judged), perf_counter() - begun,
        search.complete,
    )  # fmt: skip


def _units(count: int, agreement: "LayerAgreement") -> list[frozenset[tuple[str, int]]]:
    layers = [frozenset(product((ATTENTION, MLP), [layer])) for layer in range(count)]
    return [frozenset([half]) for layer in layers for half in sorted(layer)] if agreement.has_halves else layers


class _Measured:
    """Measured seconds of drafts with all layers and with fewer. The differences give the costs of sublayers."""

    def __init__(self, trials: TrialRunner, count: int, chains: Sequence[int]) -> None:
        self._trials, self._count = trials, count
        self._widths = [drafts + 1 for drafts in chains]

    @property
    def threads(self) -> int:
        """Return the thread count at which the target alone is fastest."""
        plain = self._trials.plain
        return min(plain, key=lambda threads: sum(each.verify_seconds / each.rounds for each in plain[threads]))

    def costs(self, layers: LayersPlan) -> GraphCosts:
        """Return the costs of a bundle that drafts with these layers. Separate graphs give the draft its own time."""
        wide = self._widths[-1] > self._trials.source.plan.prefill_chunk
        settings = ["graphs=separate", layers_setting(layers)]
        settings += [f"cache.prefill_chunk={self._widths[-1]}"] if wide else []
        (trial,) = self._trials.try_all(
            [TrialRequest(DraftShape(drafts=MEASURED), self._widths, settings, accepting=False)]
        )
        return trial.costs[None, self.threads]

    def halves(self, whole: GraphCosts) -> PassCosts:
        """Return the costs of sublayers from drafts with all layers, only attention, and only MLPs."""
        every = tuple(range(self._count))
        passes = [self._a_pass(self.costs(layers)) for layers in (LayersPlan(every, ()), LayersPlan((), every))]
        attention, mlp = ((self._a_pass(whole) - other) / self._count for other in reversed(passes))
        return self._pass_costs(sum(passes) - self._a_pass(whole), attention, mlp, whole)

    def layers(self, whole: GraphCosts) -> PassCosts:
        """Return the costs of sublayers from drafts with all layers and with one. A sublayer costs half a layer."""
        one = self._a_pass(self.costs(LayersPlan((0,), (0,))))
        layer = (self._a_pass(whole) - one) / max(1, self._count - 1)
        return self._pass_costs(one - layer, layer / 2, layer / 2, whole)

    def _a_pass(self, costs: GraphCosts) -> float:
        assert costs.draft is not None, "its graphs are separate"
        return costs.draft / MEASURED

    def _pass_costs(self, base: float, attention: float, mlp: float, whole: GraphCosts) -> PassCosts:
        """Return the costs, with negative differences of noisy times raised to zero."""
        return PassCosts(max(0.0, base), max(0.0, attention), max(0.0, mlp), whole.verify, whole.host)
