"""What layers cost, from bundles of some of them: what adds up is found again; no clock gives less than zero."""

from types import SimpleNamespace

import pytest

from speccompile.measure.bench.costs import GraphCosts
from speccompile.measure.tune.layer_search import MEASURED, _Measured, layers_setting
from speccompile.plan.layers import LayersPlan

BASE, ATTENTION, MLP, LAYERS = 0.3, 0.1, 0.2, 4
VERIFY = {1: 1.0, 2: 1.1, 5: 1.3}
WHOLE = LayersPlan((0, 1, 2, 3), (0, 1, 2, 3))


class Toy:
    """Bundles that take so long, and what was asked of them."""

    def __init__(self, prefill_chunk=16, noise=0.0):
        self.plain = {
            2: [SimpleNamespace(verify_seconds=30, rounds=10)],
            1: [SimpleNamespace(verify_seconds=1, rounds=1)],
        }
        self.source = SimpleNamespace(plan=SimpleNamespace(prefill_chunk=prefill_chunk))
        self.asked, self.noise = [], noise

    def try_all(self, wanted):
        (one,) = wanted
        assert not one.accepting
        self.asked.append((one.shape.drafts, tuple(one.widths), tuple(one.settings)))
        attention, mlp = next(counts for layers, counts in KNOWN.items() if layers_setting(layers) in one.settings)
        draft = MEASURED * (BASE + ATTENTION * attention + MLP * mlp) + self.noise * len(self.asked)
        return [
            SimpleNamespace(costs={(None, 1): GraphCosts(VERIFY, draft, 0.05), (None, 2): GraphCosts({}, 99.0, 99.0)})
        ]


KNOWN = {
    WHOLE: (4, 4),
    LayersPlan(WHOLE.attention, ()): (4, 0),
    LayersPlan((), WHOLE.mlp): (0, 4),
    LayersPlan((0,), (0,)): (1, 1),
}
"""Layers that are built, and how many halves of each kind they are."""


def test_halves_cost_what_is_missing_without_them():
    toy = Toy()
    measured = _Measured(toy, LAYERS, [1, 4])
    whole = measured.costs(WHOLE)
    found = measured.halves(whole)
    assert (found.base, found.attention, found.mlp) == pytest.approx((BASE, ATTENTION, MLP))
    assert (found.verify, found.host) == (VERIFY, 0.05)
    assert [asked[:2] for asked in toy.asked] == [(MEASURED, (2, 5))] * 3
    assert all("graphs=separate" in settings and len(settings) == 2 for _, _, settings in toy.asked)


def test_layers_that_cannot_be_split_cost_half_each():
    toy = Toy(prefill_chunk=4)
    measured = _Measured(toy, LAYERS, [1, 4])
    found = measured.layers(measured.costs(WHOLE))
    assert (found.base, found.attention, found.mlp) == pytest.approx(
        (BASE, (ATTENTION + MLP) / 2, (ATTENTION + MLP) / 2)
    )
    assert "cache.prefill_chunk=5" in toy.asked[0][2]
    assert len(toy.asked) == 2


def test_nothing_takes_less_than_no_time():
    measured = _Measured(Toy(noise=9.0), LAYERS, [1])
    found = measured.halves(measured.costs(WHOLE))
    assert (found.attention, found.mlp) == (0, 0)
    assert found.base > 0


@pytest.mark.parametrize(("layers", "setting"), [
    (LayersPlan((0, 2), (0, 2)), "drafter.layers=[0, 2]"),
    (LayersPlan((0,), ()), 'drafter.layers={"attention": [0], "mlp": []}'),
])  # fmt: skip
def test_layers_are_set_as_a_recipe_writes_them(layers, setting):
    assert layers_setting(layers) == setting
