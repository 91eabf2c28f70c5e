"""What measured costs allow: on generations and costs written by hand."""

from dataclasses import replace

import pytest

from speccompile.measure.bench.cost_model import BreakEven, CurvePoint, acceptance_rate, make_budget
from speccompile.measure.bench.costs import GraphCosts
from tests.light.bench_example import AUTOREGRESSIVE, SPECULATIVE
from tests.light.bundle_example import manifest

COSTS = GraphCosts({1: 0.02, 3: 0.03, 5: 0.04}, draft=0.03, host=0.01)


def test_the_curve_and_the_break_even():
    found = make_budget(COSTS, 77, manifest(), [SPECULATIVE])
    assert found.verify == (CurvePoint(1, 0.02, 1.0), CurvePoint(3, 0.03, 1.5), CurvePoint(5, 0.04, 2.0))
    assert (found.context, found.draft_seconds, found.host_seconds) == (77, 0.03, 0.01)
    assert (found.break_even.width, found.break_even.mean_accepted) == (5, pytest.approx(8 / 3))
    rate = found.break_even.acceptance_rate
    assert (1 - rate**5) / (1 - rate) == pytest.approx(8 / 3)
    assert [found.break_even_at(point) for point in found.verify] == pytest.approx([1, 7 / 3, 8 / 3])


def test_what_costs_allow_and_what_was_reached():
    found = make_budget(COSTS, 77, manifest(), [SPECULATIVE])  # six tokens in three rounds of 0.08 s
    assert found.allowed_tokens_per_second == pytest.approx(6 / 0.24)
    assert found.reached == pytest.approx(0.24 / 0.6)


def test_rounds_cost_what_their_own_width_costs():
    adaptive = replace(SPECULATIVE, draft_lengths=[1, 0, 4])  # widths 2, timed as 3; 1; 5
    found = make_budget(COSTS, 77, manifest(), [adaptive])
    assert found.allowed_tokens_per_second == pytest.approx(6 / (0.07 + 0.03 + 0.08))


def test_trees_and_fused_rounds_have_one_width():
    (verify,) = manifest().graphs
    adaptive = replace(SPECULATIVE, draft_lengths=[1, 0, 4])
    fused, drafted = ((replace(verify, name=name), verify) for name in ("step", "draft"))
    for changes in ({"tree": "static", "depth": 2, "graphs": drafted}, {"graphs": fused}):
        found = make_budget(COSTS, 77, manifest(**changes), [adaptive])
        assert found.allowed_tokens_per_second == pytest.approx(6 / (0.08 + 0.03 + 0.08))


def test_trees_of_the_host_are_as_wide_as_what_it_found():
    adaptive = replace(SPECULATIVE, draft_lengths=[1, 0, 4])
    index = manifest(tree="dynamic", depth=2)  # whose only graph is `verify`
    found = make_budget(replace(COSTS, draft=None), 77, index, [adaptive])
    assert found.allowed_tokens_per_second == pytest.approx(6 / (0.04 + 0.03 + 0.05))


def test_medians_over_generations():
    slow, slower = (replace(SPECULATIVE, seconds=seconds) for seconds in (0.9, 30.0))
    found = make_budget(COSTS, 77, manifest(), [SPECULATIVE, slower, slow])
    assert found.allowed_tokens_per_second == pytest.approx(25)
    assert found.reached == pytest.approx(0.24 / 0.8)


def test_what_has_no_break_even():
    single = replace(SPECULATIVE, token_ids=[1], rounds=0, path_lengths=[], draft_lengths=[])
    found = make_budget(COSTS, 77, manifest(), [single])
    assert (found.allowed_tokens_per_second, found.reached) == (None, None)
    alone = make_budget(GraphCosts({1: 0.02}, None, 0.01), 77, manifest(tokens=0, depth=0), [])
    assert (alone.break_even, alone.allowed_tokens_per_second, alone.reached) == (None, None, None)
    tree = make_budget(COSTS, 77, manifest(tree="static", depth=2), [AUTOREGRESSIVE])
    assert tree.break_even == BreakEven(5, pytest.approx(8 / 3), None)


def test_acceptance_rates():
    assert acceptance_rate(5, 4) == pytest.approx(1)
    assert acceptance_rate(1, 4) == pytest.approx(0, abs=1e-9)
    assert acceptance_rate(1.5, 1) == pytest.approx(0.5)
    assert acceptance_rate(5.1, 4) is None
