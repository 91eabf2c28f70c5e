"""What a step says while it runs: a clock that the test moves, and the lines of the logger."""

import logging
import sys
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import pytest

from speccompile.progress import heartbeat, loading_torch, log_step, progress_counter


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, logger="speccompile")
    return lambda: [record.getMessage() for record in caplog.records]


def run(clock: Clock, total: float, unit: str, amounts: list[tuple[float, float]]) -> None:
    """Advance by each (seconds passed, amount)."""
    with progress_counter("writing", total, unit, clock=clock) as advance:
        for seconds, amount in amounts:
            clock.seconds += seconds
            advance(amount)


def test_what_takes_less_than_three_seconds_says_nothing(clock, lines):
    run(clock, 100, "layers", [(0.029, 1)] * 100)
    assert lines() == []


def test_bytes_with_the_time_left_at_the_rate_so_far(clock, lines):
    run(clock, 4.5e9, "bytes", [(60, 1.2e9)])
    assert lines() == ["writing: 1.2 of 4.5 GB, 3 min left"]  # 165 s at 20 MB/s


def test_small_files_are_told_in_megabytes(clock, lines):
    run(clock, 300e6, "bytes", [(10, 100e6)])
    assert lines() == ["writing: 100 of 300 MB, 20 s left"]


def test_other_units_are_counts(clock, lines):
    run(clock, 32, "layers", [(6, 12)])
    assert lines() == ["writing: 12 of 32 layers, 10 s left"]


def test_more_than_an_hour(clock, lines):
    run(clock, 100, "prompts", [(100, 1)])
    assert lines() == ["writing: 1 of 100 prompts, 2 h 45 min left"]  # 9900 s


def test_a_line_at_most_every_three_seconds(clock, lines):
    run(clock, 100, "layers", [(0.5, 1)] * 40)  # 20 s
    assert [line.partition(",")[0] for line in lines()] == [
        f"writing: {done} of 100 layers" for done in range(6, 40, 6)
    ]


@pytest.mark.parametrize(("done", "total"), [(0, 5), (5, 5), (6, 5), (0, 0)])
def test_no_time_left_where_no_rate_or_nothing_is_left(clock, lines, done, total):
    run(clock, total, "layers", [(6, done)])
    assert lines() == [f"writing: {done} of {total} layers"]


def test_threads_count_together(clock, lines):
    with progress_counter("writing", 8000, "tensors", clock=clock) as advance, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: [advance(1) for _ in range(1000)], range(8)))
        clock.seconds += 5
        advance(0)
    assert lines() == ["writing: 8000 of 8000 tensors"]


def test_a_step_within_and_around(clock, lines):
    with log_step("lowering"), progress_counter("lowering", 2, "layers", clock=clock) as advance:
        for _ in range(2):
            with log_step("layer"):
                clock.seconds += 5
            advance(1)
    assert lines() == [
        "lowering ...",
        "layer ...",
        "lowering: 1 of 2 layers, 5 s left",
        "layer ...",
        "lowering: 2 of 2 layers",
    ]


def test_a_heartbeat_inside_the_step_that_it_names_says_nothing_more(caplog):
    caplog.set_level(logging.DEBUG, logger="speccompile")
    with log_step("opening"), heartbeat("opening"):
        pass
    assert [record.getMessage() for record in caplog.records] == ["opening ...", "opening: 0.0 s"]


def test_the_error_of_the_work_goes_through(clock, lines):
    with pytest.raises(ValueError, match="broken"), progress_counter("writing", 2, "layers", clock=clock):
        raise ValueError("broken")
    assert lines() == []


def test_pytorch_is_told_before_it_is_loaded_and_not_again(lines, monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with loading_torch():
        assert lines() == ["loading PyTorch ..."]
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    with loading_torch():
        assert len(lines()) == 1
