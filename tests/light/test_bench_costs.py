"""The cost of a round, on toy engines with a clock of their own: what is timed, in which order, and what follows."""

from itertools import pairwise

import pytest

from speccompile.errors import UsageError
from speccompile.measure.bench import costs as costs_module
from speccompile.measure.bench.costs import (
    WARM_UP,
    GraphCosts,
    break_even,
    curve_widths,
    expected_tokens,
    measure_costs,
)
from tests.light.fake_bundle import toy_bundle, toy_manifest
from tests.light.toy_engine import ToyEngine

VERIFY_COSTS = {1: 1.0, 2: 1.5, 5: 2.0, 8: 4.0}
DRAFT_COST = 0.25


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class TimedEngine(ToyEngine):
    """Its graphs take time on a clock: of `verify` what its width says, of others a fixed one."""

    def __init__(self, manifest, clock):
        super().__init__(manifest)
        self.clock, self.rounds = clock, []

    def bind(self, graph, widths, optional=(), rows=None):
        run = super().bind(graph, widths, optional, rows)

        def timed():
            run()
            length, given = (self.host_view(name, (self.batch,)).tolist() for name in ("length", "n_given"))
            self.rounds.append((graph, widths["window"], length, given))
            is_draft = graph == "draft"
            self.clock.now += DRAFT_COST if is_draft else VERIFY_COSTS.get(widths["window"], 100.0)

        return timed


@pytest.fixture
def timed(monkeypatch):
    """Return a toy bundle on a clock of its own; the keywords are those of `toy_bundle`."""

    def make(**changes):
        clock = Clock()
        monkeypatch.setattr(costs_module, "perf_counter", clock)
        bundle = toy_bundle(**changes)
        bundle.engine = TimedEngine(bundle.manifest, clock)
        return bundle

    return make


def test_every_graph_is_timed_by_width(timed):
    bundle = timed()
    costs = measure_costs(bundle, [1, 2, 5, 8], context=37, repeats=3)
    assert (costs.verify, costs.draft) == (VERIFY_COSTS, DRAFT_COST)
    assert costs.host > 0
    measured = bundle.engine.rounds[-36:]  # two rounds of four widths, three of them with a draft; the last repeat
    assert {tuple(length) for _, _, length, _ in measured} == {(37,)}
    assert [width for graph, width, _, _ in measured if graph == "verify"][-8:] == [1, 1, 2, 2, 5, 5, 8, 8]
    for (graph, width, *_), (following, *_) in pairwise(measured):
        if graph == "verify":
            assert (following == "draft") == (width > 1)


def test_one_row_of_a_batch_is_active(timed):
    bundle = timed(batch_size=3)
    measure_costs(bundle, [1, 5], context=10, repeats=1)
    assert bundle.engine.rounds[-1][2:] == ([10, 0, 0], [1, 0, 0])


def test_a_fused_step_is_verification_at_the_decoding_width(timed):
    bundle = timed(fused=True)
    costs = measure_costs(bundle, [1, 2, 5], context=20, repeats=2)
    assert (costs.verify, costs.draft) == ({1: 1.0, 2: 1.5, 5: 2.0}, None)
    assert {(graph, width) for graph, width, *_ in bundle.engine.rounds[-12:]} == {
        ("verify", 1), ("verify", 2), ("step", 5),
    }  # fmt: skip
    assert break_even(costs, 5) == pytest.approx((2 + costs.host) / (1 + costs.host))


@pytest.mark.parametrize(
    "changes",
    [
        {"speculative": False}, {"tree": "static"}, {"tree": "dynamic"}, {"sampling": True},
        {"sampling": True, "sample": True}, {"sampling": True, "sample": True, "fused": True}, {"features": True},
    ],
)  # fmt: skip
def test_all_kinds_of_bundles_are_measured_and_generate_as_before(timed, changes):
    bundle = timed(**changes)
    before = bundle.generate([3, 1, 4], max_new_tokens=12).token_ids
    widths = curve_widths(bundle.manifest)
    costs = measure_costs(bundle, widths, context=16, repeats=1)
    assert list(costs.verify) == widths
    assert (costs.draft is None) == (not bundle.engine.has("draft"))
    assert bundle.generate([3, 1, 4], max_new_tokens=12).token_ids == before


def test_an_end_of_sequence_token_ends_no_measurement(timed):
    bundle = timed(eos_token_ids=tuple(range(258)))
    assert bundle.generate([3, 1, 4]).rounds == 0
    assert measure_costs(bundle, [1], context=5, repeats=1).verify == {1: 1.0}


def test_medians_of_the_second_of_two_rounds(timed):
    bundle = timed()
    bind = bundle.engine.bind

    def uneven(graph, widths, optional=(), rows=None):
        """Let runs take longer and longer: 1, 2, .. seconds."""
        run, bundle.engine.clock.step = bind(graph, widths, optional, rows), 0.0

        def timed_run():
            run()
            bundle.engine.clock.step += 1
            bundle.engine.clock.now += bundle.engine.clock.step - VERIFY_COSTS[1]

        return timed_run

    bundle.engine.bind = uneven
    assert measure_costs(bundle, [1], context=5, repeats=3).verify == {1: WARM_UP + 4}  # of 5, 7 and 9


def test_expected_tokens_is_the_formula_of_leviathan():
    alpha, drafts = 0.7, 4
    closed = (1 - alpha ** (drafts + 1)) / (1 - alpha)
    assert expected_tokens([alpha**depth for depth in range(1, drafts + 1)]) == pytest.approx(closed)
    assert expected_tokens([]) == 1


def test_break_even_is_the_ratio_of_rounds():
    costs = GraphCosts({1: 10.0, 5: 14.0}, 3.0, 1.0)
    assert break_even(costs, 5) == (14 + 3 + 1) / (10 + 1)
    assert break_even(costs, 1) == 1
    with pytest.raises(KeyError):
        break_even(costs, 4)


def test_widths_of_a_curve():
    def widths(**changes):
        return curve_widths(toy_manifest(**changes))

    assert widths(tokens=4, prefill_chunk=16) == [1, 2, 3, 4, 5, 6, 7, 8, 16]
    assert widths(tokens=10, prefill_chunk=16) == [1, 2, 3, 4, 5, 6, 7, 8, 11, 16]
    assert widths(tokens=3, prefill_chunk=2) == [1, 2, 3, 4]
    made = toy_manifest(tokens=5, prefill_chunk=16)
    assert curve_widths(made, on_device=True) == [1, 2, 4, 6, 8, 16]
    assert widths(speculative=False, prefill_chunk=512)[-3:] == [16, 32, 64]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, 1], 5, 1), r"window widths: received \[0, 1\], expected some from 1 to 16"),
        (([17], 5, 1), r"window widths: received \[17\], expected some from 1 to 16"),
        (([], 5, 1), r"window widths: received \[\], expected some from 1 to 16"),
        (([1], 0, 1), "context: received 0 tokens, expected 1 to 158"),
        (([1], 159, 1), "context: received 159 tokens, expected 1 to 158"),
        (([1], 5, 0), "repeats is 0: expected at least 1"),
    ],
)
def test_what_is_refused(arguments, message):
    bundle = toy_bundle()
    widths, context, repeats = arguments
    with pytest.raises(UsageError, match=message):
        measure_costs(bundle, widths, context=context, repeats=repeats)
    assert bundle.engine.runs == []


def test_the_longest_context_fits():
    assert measure_costs(toy_bundle(), [16], context=158, repeats=1).verify.keys() == {16}
