"""Parts of one piece of work on several threads."""

import threading

import pytest

from speccompile.machine import parallel
from speccompile.machine.parallel import in_parallel


@pytest.mark.parametrize("cores", [1, 2, 5])
@pytest.mark.parametrize("parts", [0, 1, 7])
def test_results_come_in_the_order_of_the_parts(monkeypatch, cores, parts):
    monkeypatch.setattr(parallel, "available_cores", lambda: cores)
    assert in_parallel(lambda part: part * part, iter(range(parts))) == [part * part for part in range(parts)]


def test_parts_run_at_the_same_time(monkeypatch):
    monkeypatch.setattr(parallel, "available_cores", lambda: 3)
    together = threading.Barrier(3, timeout=30)  # raises where fewer than three threads meet
    assert sorted(in_parallel(lambda _: together.wait(), range(3))) == [0, 1, 2]


@pytest.mark.parametrize("cores", [1, 2])
def test_the_error_of_the_first_part_that_fails_propagates(monkeypatch, cores):
    monkeypatch.setattr(parallel, "available_cores", lambda: cores)
    with pytest.raises(ValueError, match="part 2"):
        in_parallel(fail_from_two, range(1000))


def fail_from_two(part: int) -> int:
    if part >= 2:
        raise ValueError(f"part {part}")
    return part
