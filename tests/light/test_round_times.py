"""What rounds cost on a machine: what one process finds out, the next begins with."""

import json
from pathlib import Path

import pytest

from speccompile.bundle.result_cache import ResultCache
from speccompile.runtime import first_times
from speccompile.runtime.round_times import NAME, PROCESSES, RecordedTimes
from speccompile.runtime.rounds.adaptive_length import AdaptiveDraftLength

CHAIN = {width: width - 1 for width in range(1, 6)}
TIMES = {"autoregressive": 1.0, "windows": {"3": 1.2, "5": 1.5}, "drafting": 0.25, "catch_up": 0.01}
KEY = {"engine": "x"}


def timed(policy: AdaptiveDraftLength, *, draft: float = 0.25) -> AdaptiveDraftLength:
    """Tell a policy of a few rounds, the first run at each size without its time."""
    policy.begin(40, 100)
    policy.record_catch_up(40, 0.4, 0.0)
    for seconds in (None, 1.0, 1.1):
        assert policy.next_width(0) == 1 or seconds == 1.1
        policy.record_autoregressive(seconds)
    for seconds in (None, 1.5):
        policy.record_draft(None if seconds is None else draft)
        policy.record_verify(5, seconds, [4], 0)
    return policy


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("SPECCOMPILE_CACHE_DIR", str(tmp_path))
    return tmp_path / "times"


def test_nothing_is_said_before_every_graph_was_timed():
    policy = AdaptiveDraftLength(CHAIN)
    assert policy.measured_times() is None
    policy.begin(4, 10)
    policy.record_autoregressive(1.0)
    policy.record_verify(5, 1.5, [4], 0)
    assert policy.measured_times() is None  # drafts were not
    policy.record_draft(0.25)
    assert policy.measured_times() == {"autoregressive": 1.0, "windows": {"5": 1.5}, "drafting": 0.25, "catch_up": 0.0}


def test_first_runs_are_not_timed():
    found = timed(AdaptiveDraftLength(CHAIN)).measured_times()
    assert found == {"autoregressive": 1.0, "windows": {"5": 1.5}, "drafting": 0.25, "catch_up": 0.01}


def test_the_speedup_is_estimated_by_what_rounds_of_each_width_cost():
    """Time a round without drafts (1 s), one of 2 drafts (1.2 s and drafting), one of 4 (1.5 s and drafting): six
    tokens, which take 6 s alone. A round of one draft costs a time between."""
    policy = AdaptiveDraftLength(CHAIN)
    assert policy.estimated_speedup([0, 4], 6) is None
    policy.expect_times(TIMES)
    assert policy.estimated_speedup([0, 0], 2) is None
    assert policy.estimated_speedup([0, 2, 4], 6) == pytest.approx(6 / (1 + 1.45 + 1.75))
    assert policy.estimated_speedup([1], 1) == pytest.approx(1 / 1.35)
    busy = AdaptiveDraftLength(CHAIN)
    busy.expect_times(TIMES | {"autoregressive": 10.0})  # a round without drafts seems to take longer than one with
    assert busy.estimated_speedup([0, 4], 6) == pytest.approx(3)  # the acceptance length
    fused = AdaptiveDraftLength(CHAIN, fused=True)
    fused.expect_times(TIMES)
    assert fused.estimated_speedup([2, 4], 6) == pytest.approx(6 / (1.2 + 1.5))


@pytest.mark.parametrize("fused", [False, True])
def test_who_begins_with_times_drafts_in_the_first_round(fused):
    first, later = AdaptiveDraftLength(CHAIN, fused=fused), AdaptiveDraftLength(CHAIN, fused=fused)
    later.expect_times(TIMES)
    assert first.begin(40, 100) == later.begin(40, 100) == 5
    assert (first.next_width(0), later.next_width(0)) == (1, 5)
    assert later.measured_times() is None  # what others measured is not written as its own


def test_expected_times_hold_until_rounds_without_drafts_were_timed_as_well():
    """Compare no measured round with an expected one: the first rounds of a process are slow, and drafts would lose."""
    policy = AdaptiveDraftLength(CHAIN)
    policy.expect_times(TIMES)
    policy.begin(40, 100)
    for _ in range(4):
        policy.record_draft(2.5)
        policy.record_verify(5, 15.0, [1], 0)
        assert policy.next_width(0) > 1
    policy.record_autoregressive(1.0)  # so the rounds with drafts were as slow as they seemed
    for _ in range(4):
        policy.record_draft(2.5)
        policy.record_verify(5, 15.0, [1], 0)
    assert policy.next_width(0) == 1


def test_who_begins_with_times_at_which_drafting_does_not_pay_does_not_draft():
    policy = AdaptiveDraftLength(CHAIN)
    policy.expect_times(TIMES | {"drafting": 40.0})
    assert policy.begin(40, 100) == 1


@pytest.mark.parametrize("fused", [False, True])
def test_rounds_with_drafts_are_expected_to_have_as_large_a_part_on_the_host_as_those_without(fused):
    """Time rounds without drafts that take two seconds longer than when the engine was opened: rounds with drafts are
    expected to take as much longer, until one is timed."""
    drafting = 0.0 if fused else 4.5
    policy = AdaptiveDraftLength(CHAIN, fused=fused)
    policy.expect_times(TIMES | {"drafting": drafting})
    policy.begin(40, 100)
    model = policy._model
    assert model.trial_cost(0) == pytest.approx(1.5 + drafting - 1.0)
    policy.record_autoregressive(3.0)
    assert model.trial_cost(0) == pytest.approx(1.5 + drafting + 2.0 - 3.0)
    if not fused:
        policy.record_draft(0.5)
    policy.record_verify(5, 3.5, [4], 0)
    assert policy.measured_times() is not None
    assert model.trial_cost(0) == pytest.approx((0 if fused else 0.5) + 3.5 - 3.0)


@pytest.mark.parametrize("draft", [0.25, 1.5, 2.5, 40.0])
def test_a_rehearsed_beginning_leaves_nothing_behind(draft):
    """Give two policies the same rounds, none of whose drafts is right: one has begun a generation when it was opened,
    of which nothing came."""
    rehearsed, fresh = policies = AdaptiveDraftLength(CHAIN), AdaptiveDraftLength(CHAIN)
    for policy in policies:
        policy.expect_times(TIMES | {"drafting": draft})
    rehearsed.begin(1, 1)
    assert rehearsed.begin(40, 100) == fresh.begin(40, 100)
    widths = set()
    for _ in range(60):
        width = rehearsed.next_width(1)
        assert width == fresh.next_width(1)
        widths.add(width)
        for policy in policies:
            if width == 1:
                policy.record_autoregressive(1.0)
            else:
                policy.record_draft(draft)
                policy.record_verify(width, 1.5, [0], 0)
    assert 1 in widths


@pytest.mark.parametrize("windows", [{"3": 1.2}, {"5": 1.5, "9": 2.0}, {}])
def test_times_of_other_widths_are_ignored_whole(windows):
    policy = AdaptiveDraftLength(CHAIN)
    policy.expect_times(TIMES | {"windows": windows})
    policy.begin(40, 100)
    assert policy.next_width(0) == 1


def test_times_do_not_replace_what_this_process_has_measured():
    policy = timed(AdaptiveDraftLength(CHAIN))
    before = policy.measured_times()
    policy.expect_times({**TIMES, "autoregressive": 100.0})
    assert policy.measured_times() == before


RECORD = TIMES | {"processes": 1}


def test_a_process_writes_a_record_once_and_again_where_its_times_have_clearly_changed(cache):
    record = RecordedTimes(KEY)
    assert record.known is None
    record.update(None)
    assert not cache.exists()
    record.update(TIMES)
    (file,) = cache.iterdir()
    assert json.loads(file.read_text())["found"] == RecordedTimes(KEY).known == RECORD
    before = file.read_bytes()
    record.update(TIMES | {"autoregressive": 1.04})
    assert file.read_bytes() == before
    record.update(TIMES | {"autoregressive": 1.1})
    assert RecordedTimes(KEY).known == RECORD | {"autoregressive": 1.1}
    assert RecordedTimes({"engine": "y"}).known is None


def test_a_record_is_the_mean_of_the_last_processes(cache):
    RecordedTimes(KEY).update(TIMES)
    record = RecordedTimes(KEY)
    for busy in (9.0, 2.0):  # a process counts once, with what it knows at last
        record.update({"autoregressive": busy, "windows": {"4": 1.3, "5": 2.5}, "drafting": 0.25, "catch_up": 0.0})
    windows = {"3": 1.2, "4": 1.3, "5": 2.0}
    assert RecordedTimes(KEY).known == TIMES | {"autoregressive": 1.5, "windows": windows, "processes": 2}
    for _ in range(60):
        RecordedTimes(KEY).update(TIMES | {"autoregressive": 4.0})
    found = RecordedTimes(KEY).known
    assert 2 < found["processes"] <= PROCESSES
    assert found["autoregressive"] == pytest.approx(4.0, rel=0.3)  # what changes it by less is not written


DAMAGED = [
    {},
    TIMES,
    RECORD | {"processes": 0},
    RECORD | {"autoregressive": 0.0},
    RECORD | {"autoregressive": "fast"},
    RECORD | {"drafting": -1.0},
    RECORD | {"windows": {"wide": 1.0}},
    RECORD | {"windows": {"5": None}},
    RECORD | {"windows": 5},
    {name: value for name, value in RECORD.items() if name != "catch_up"},
]


@pytest.mark.parametrize("found", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_record_counts_as_none(cache, found):
    ResultCache.named(NAME).store(KEY, found)
    assert RecordedTimes(KEY).known is None


def test_nothing_is_kept_without_a_cache(cache, monkeypatch):
    monkeypatch.setenv("SPECCOMPILE_CACHE_LIMIT_GB", "0")
    RecordedTimes(KEY).update(TIMES)
    assert not cache.exists()
    assert RecordedTimes(KEY).known is None


def test_no_turn_begins_that_would_end_behind_the_limit(monkeypatch):
    """Count turns of two ways with runs of a second: the first two have a run of each, later ones have two."""
    seconds = [0.0]

    def run() -> None:
        seconds[0] += 1

    monkeypatch.setattr(first_times, "perf_counter", lambda: seconds[0])
    monkeypatch.setattr(first_times, "clock", lambda *, on_device: lambda: seconds[0])
    assert first_times._seconds([[run], [run]], 9, 15.0) == [[1.0], [1.0]]
    assert seconds == [2.0 + 2 + 4 + 4]  # 16 after one more
    assert first_times._seconds([[run], [run]], 9, 3.0, least_turns=2) is None
