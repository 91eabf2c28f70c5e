"""The plugin that runs this suite: two tiers, shards, orders, resuming, times."""

import itertools
import json
import re
from pathlib import Path

import pytest

from tests.light.suite_example import SECOND, commit, ran, write
from tests.suite import plan


def test_a_mark_without_a_reason_is_an_error_of_collection(suite: pytest.Pytester) -> None:
    marks = ("sweep", "sweep()", "sweep('')", "sweep(' ')", "sweep(reason='')", "sweep(3)")
    for number, mark in enumerate(marks):
        write(suite, f"test_bad_{number}", f"import pytest\n\n@pytest.mark.{mark}\ndef test_it():\n    pass\n")
    result = suite.runpytest_subprocess("tests")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.assert_outcomes(errors=len(marks))
    said = re.findall(r"test_bad_(\d).py::test_it: received a mark sweep without a reason", result.stdout.str())
    assert said == [str(number) for number in range(len(marks))]


def test_the_second_tier_is_left_out_unless_it_is_asked_for(suite: pytest.Pytester) -> None:
    commit(suite)
    first = ["test_plain", "test_some[1]"]
    second = [*(f"test_many[{n}]" for n in range(7)), "test_some[2]", *(f"test_each[{n}]" for n in range(5))]
    assert ran(suite) == first
    assert ran(suite, "tests/test_first.py") == first
    assert ran(suite, "--sweep") == second
    assert ran(suite, "--sweep", "-k", "test_some") == ["test_some[2]"]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["test_many[3]"], ["test_many[3]"]),
        (["test_some[2]", "test_some[1]"], ["test_some[2]", "test_some[1]"]),
        (["test_some"], ["test_some[1]", "test_some[2]"]),
    ],
    ids=str,
)
def test_a_test_that_is_named_runs(suite: pytest.Pytester, names: list[str], expected: list[str]) -> None:
    assert ran(suite, *(f"tests/test_first.py::{name}" for name in names)) == expected


def test_shards_part_the_sweep(suite: pytest.Pytester) -> None:
    commit(suite)
    (suite.path / "tests" / "costs.json").write_text(json.dumps({"sweep": {"tests/test_first.py": 90.0}}))
    parts = [ran(suite, "--sweep", "--shard", f"{index}/3") for index in (1, 2, 3)]
    assert sorted(test for part in parts for test in part) == sorted(ran(suite, "--sweep"))
    assert all(parts)


def test_the_last_commit_chooses_the_shard_and_the_order(suite: pytest.Pytester) -> None:
    commit(suite)
    result = suite.runpytest_subprocess("--sweep", "--shard", "auto", "--shuffle", "auto")
    head = plan.head(suite.path)
    said = f"second tier, shard {int(head, 16) % plan.SHARDS + 1}/{plan.SHARDS}, order of --shuffle {int(head[:8], 16)}"
    assert (result.ret, result.stdout.str().count(said)) == (0, 2)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--shard", "1/2"], "give --sweep as well"),
        (["--sweep", "--shard", "0/2"], "received '0/2', expected auto or I/N"),
        (["--sweep", "--shard", "3/2"], "received '3/2', expected auto or I/N"),
        (["--sweep", "--shard", "auto"], "chosen by the last commit, and git says"),
        (["--shuffle", "x"], "received 'x', expected auto or a number"),
    ],
    ids=str,
)
def test_bad_options_are_refused(suite: pytest.Pytester, options: list[str], words: str) -> None:
    result = suite.runpytest_subprocess(*options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert words in result.stderr.str()


@pytest.mark.parametrize("count", [1, 2, 5, 40])
def test_shards_are_exact_and_even(count: int) -> None:
    tests = [f"{name}.py::test[{n}]" for name in "abcdefgh" for n in range(5)]
    costs = {"a.py": 100.0, "b.py": 30.0, "c.py": 0.0}
    parts = plan.shards(tests, costs, count)
    assert len(parts) == count
    assert sorted(test for part in parts for test in part) == sorted(tests)
    assert parts == plan.shards(tests, costs, count)
    files = [sum(any(test.startswith(f"{name}.py") for test in part) for part in parts) for name in "cdefgh"]
    if count <= 5:
        assert files == [1] * 6  # only what costs more than a shard is cut


def test_a_file_whose_tests_need_what_the_first_makes_is_not_cut() -> None:
    (dear,) = plan.UNCUT
    assert (Path(__file__).resolve().parents[2] / dear).is_file()
    tests = [f"{name}::test[{n}]" for name in (dear, "a.py", "b.py") for n in range(3)]
    parts = plan.shards(tests, {dear: 90.0, "a.py": 9.0, "b.py": 9.0}, 4)
    assert [part for part in parts if any(test.startswith(dear) for test in part)] == [set(tests[:3])]


def test_the_dearest_files_come_first() -> None:
    tests = ["cheap.py::b", "dear.py::b", "dear.py::a", "unknown.py::a"]
    ordered = plan.dearest_first(tests, plan.file_of, {"cheap.py": 1.0, "dear.py": 60.0})
    assert ordered == ["dear.py::b", "dear.py::a", "unknown.py::a", "cheap.py::b"]


def test_a_seed_orders_files_and_tests_and_keeps_parameters_together(suite: pytest.Pytester) -> None:
    write(suite, "test_first", """
import pytest

@pytest.fixture(scope="module", params=range(3))
def made(request):
    return request.param

@pytest.mark.parametrize("n", range(6))
def test_of(made, n):
    pass
""")  # fmt: skip
    commit(suite)
    orders = [ran(suite, "--shuffle", seed, "tests/test_first.py") for seed in ("1", "1", "2")]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2])
    made = [name.removeprefix("test_of[")[0] for name in orders[0]]
    assert sum(a != b for a, b in itertools.pairwise(made)) == 2


@pytest.mark.sweep("five runs in processes of their own", but=["workers"])
@pytest.mark.parametrize("workers", [[], ["-n", "2", "--dist", "loadfile"]], ids=["alone", "workers"])
def test_an_interrupted_run_goes_on(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: list[str]
) -> None:
    write(suite, "test_second", SECOND.replace("pass", "assert n != 3 or __import__('os').environ.get('FIXED')"))
    commit(suite)
    assert suite.runpytest_subprocess("--sweep", *workers).ret == pytest.ExitCode.TESTS_FAILED
    alone = not workers  # only then pytest tells how many it left out
    again = suite.runpytest_subprocess("--sweep", "--resume", *workers)
    again.assert_outcomes(failed=1, deselected=14 * alone)
    monkeypatch.setenv("FIXED", "1")
    suite.runpytest_subprocess("--sweep", "--resume", *workers).assert_outcomes(passed=1, deselected=14 * alone)
    result = suite.runpytest_subprocess("--sweep", "--resume", *workers)
    result.assert_outcomes(deselected=15 * alone)
    assert result.ret == 0
    write(suite, "test_second", SECOND + "\n")  # another state of files
    suite.runpytest_subprocess("--sweep", "--resume", *workers).assert_outcomes(passed=13, deselected=2 * alone)


@pytest.mark.sweep("a run in processes of its own", but=["workers"])
@pytest.mark.parametrize("workers", [[], ["-n", "2", "--dist", "loadfile"]], ids=["alone", "workers"])
def test_times_are_printed_and_kept(suite: pytest.Pytester, workers: list[str]) -> None:
    write(suite, "test_second", "import time\n\ndef test_slow():\n    time.sleep(0.3)\n    sum(range(10**7))\n")
    result = suite.runpytest_subprocess("--times", "--write-costs", *workers)
    lines = [line.split() for line in result.stdout.lines]
    wall, cpu = next((float(line[0]), float(line[1])) for line in lines if line[2:] == ["tests/test_second.py"])
    assert wall > 0.3
    assert cpu > 0
    assert next(line for line in lines if line[2:] == ["tests"])
    assert (
        lines[[line[4:] for line in lines].index(["the", "3", "slowest", "tests"]) + 1][2]
        == "tests/test_second.py::test_slow"
    )
    costs = json.loads((suite.path / "tests" / "costs.json").read_text())
    assert sorted(costs["first"]) == ["tests/test_first.py", "tests/test_second.py"]
    assert costs["first"]["tests/test_second.py"] == pytest.approx(cpu, abs=0.11)
