"""The search for layers over tables of agreement: a planted answer, every set there is, and no time."""

from itertools import combinations, product

import numpy as np
import pytest

from speccompile.measure.tune.elimination import ATTENTION, MLP, Elimination, PassCosts, halves_of, plan_of
from speccompile.plan.layers import LayersPlan

LAYERS, DRAFTS = 3, (1, 2, 4)
COSTS = PassCosts(0.1, 0.2, 0.3, {2: 1.1, 3: 1.2, 5: 1.4}, 0.05)
HALVES = [frozenset([half]) for half in product((ATTENTION, MLP), range(LAYERS))]
WHOLE = LayersPlan((0, 1, 2), (0, 1, 2))


def chains(probability):
    return tuple(probability**depth for depth in (1, 2, 3, 4))


def additive(losses):
    """Give answers in which each half that is left out loses so much of the probability that a draft is right."""
    return lambda layers: chains(max(0.0, 1 - sum(losses[half] for half in losses if half not in halves_of(layers))))


def search(agree, units=HALVES, own=WHOLE, has_time=lambda: True):
    found = Elimination(agree, COSTS, units, DRAFTS, has_time)
    return found, found.run(own)


def test_a_round_costs_its_passes_its_window_and_the_host():
    halves = halves_of(LayersPlan((0, 2), (1,)))
    assert COSTS.round_seconds(halves, 2) == pytest.approx(1.2 + 2 * (0.1 + 2 * 0.2 + 0.3) + 0.05)
    assert COSTS.round_seconds(frozenset(), 4) == pytest.approx(1.4 + 4 * 0.1 + 0.05)


def test_sets_of_halves_and_plans_are_the_same_thing():
    layers = LayersPlan((0, 2), (1,))
    assert plan_of(halves_of(layers)) == layers
    assert halves_of(layers) == {("attention", 0), ("attention", 2), ("mlp", 1)}


def test_halves_that_say_nothing_are_left_out():
    needed = {("attention", 0), ("mlp", 1), ("attention", 2)}
    found, best = search(additive({half: 0.9 * (half in needed) for unit in HALVES for half in unit}))
    assert best.layers == LayersPlan((0, 2), (1,))
    assert best.accepted_at_depth == (1, 1, 1, 1)
    assert found.complete


@pytest.mark.parametrize("seed", range(12))
def test_nothing_that_any_set_gives_is_better(seed):
    """Losses that add up are what the elimination is right about."""
    losses = dict(
        zip((half for unit in HALVES for half in unit), np.random.default_rng(seed).random(6) / 3, strict=True)
    )
    agree = additive(losses)
    found, best = search(agree)
    every = [frozenset().union(*units) for count in range(1, 7) for units in combinations(HALVES, count)]
    speeds = {halves: found._rate(halves, agree(plan_of(halves)))[0] for halves in every}
    assert best.tokens_per_second == pytest.approx(max(speeds.values()))
    assert len(found.judged) < len(every) / 2
    assert best.drafts in DRAFTS


def test_a_set_that_no_single_step_leads_to_is_kept_where_the_recipe_names_it():
    """Keep two layers that undo each other: without one of them nothing is right, without both everything is."""

    def agree(layers):
        missing = halves_of(WHOLE) - halves_of(layers)
        return chains(float(missing in (set(), halves_of(LayersPlan((1, 2), (1, 2))))))

    own = LayersPlan((0,), (0,))
    found, best = search(agree, own=own)
    assert best.layers == own
    assert found.judged[halves_of(own)] == best


def test_whole_layers_are_left_out_together():
    layers = [frozenset(product((ATTENTION, MLP), [layer])) for layer in range(LAYERS)]
    losses = {(kind, layer): (0.0, 0.4, 0.0)[layer] for kind in (ATTENTION, MLP) for layer in range(LAYERS)}
    found, best = search(additive(losses), layers)
    assert best.layers == LayersPlan((1,), (1,))
    assert all(each.layers.attention == each.layers.mlp for each in found.judged.values())


@pytest.mark.parametrize("judgements", [0, 3])
def test_without_time_the_best_so_far_is_the_answer(judgements):
    left = iter([True] * judgements)
    found, best = search(additive({}), own=LayersPlan((1,), (1,)), has_time=lambda: next(left, False))
    assert len(found.judged) == 2 + judgements
    assert best.layers == LayersPlan((1,), (1,))
    assert not found.complete
