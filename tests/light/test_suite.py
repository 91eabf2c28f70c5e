"""The plugin that runs this suite: two tiers, shards, resuming, budgets, times, and ends."""

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.suite import plan
from tests.suite.counting import is_build
from tests.suite.declared import write_marks

ROOT = Path(__file__).resolve().parents[2]
CONFTEST = """
pytest_plugins = [f"tests.suite.{name}" for name in ("tiers", "times", "budgets", "ends")]
"""
FIRST = """
import pytest

def test_plain():
    pass

@pytest.mark.sweep("all of them")
@pytest.mark.parametrize("n", range(7))
def test_many(n):
    pass

@pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.sweep("as 1, but larger"))])
def test_some(n):
    pass
"""
SECOND = """
import pytest

pytestmark = pytest.mark.sweep("a whole module")

@pytest.mark.parametrize("n", range(5))
def test_each(n):
    pass
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A small suite with the plugin, in a checkout of its own."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in [name for name in os.environ if name.startswith(("PYTEST_", "GIT_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # hypothesis and others take a second to load
    pytester.makeconftest(CONFTEST)
    pytester.makepyprojecttoml("[tool.pytest.ini_options]\naddopts = '--strict-markers -p xdist'")
    (pytester.path / ".gitignore").write_text("__pycache__/\n.pytest_cache/\nstd*\nrunpytest*\n")
    write(pytester, "test_first", FIRST)
    write(pytester, "test_second", SECOND)
    return pytester


def write(suite: pytest.Pytester, name: str, text: str) -> None:
    (suite.path / "tests").mkdir(exist_ok=True)
    (suite.path / "tests" / f"{name}.py").write_text(text)


def commit(suite: pytest.Pytester) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    for words in (("init", "-q"), ("add", "."), (*identity, "commit", "-qm", "all")):
        subprocess.run(["git", *words], cwd=suite.path, check=True)


def ran(suite: pytest.Pytester, *options: str) -> list[str]:
    """Tests that pass in a run, by name, in the order in which they ran."""
    result = suite.runpytest_subprocess("-v", *options)
    assert result.ret == 0, result.stdout.str() + result.stderr.str()
    return re.findall(r"^tests/(?:\w+)\.py::(\S+) PASSED", result.stdout.str(), re.MULTILINE)


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


@pytest.mark.parametrize("workers", [[], ["-n", "2", "--dist", "loadfile"]], ids=["alone", "workers"])
def test_an_interrupted_run_goes_on(suite: pytest.Pytester, workers: list[str]) -> None:
    write(suite, "test_second", SECOND.replace("pass", "assert n != 3 or __import__('os').environ.get('FIXED')"))
    commit(suite)
    assert suite.runpytest_subprocess("--sweep", *workers).ret == pytest.ExitCode.TESTS_FAILED
    again = suite.runpytest_subprocess("--sweep", "--resume", *workers)
    again.assert_outcomes(failed=1, deselected=0 if workers else 14)
    os.environ["FIXED"] = "1"
    try:
        suite.runpytest_subprocess("--sweep", "--resume", *workers).assert_outcomes(
            passed=1, deselected=0 if workers else 14
        )
        result = suite.runpytest_subprocess("--sweep", "--resume", *workers)
        assert result.ret == 0, result.stdout.str()
        result.assert_outcomes(deselected=0 if workers else 15)
        write(suite, "test_second", SECOND + "\n")  # another state of files
        suite.runpytest_subprocess("--sweep", "--resume", *workers).assert_outcomes(
            passed=13, deselected=0 if workers else 2
        )
    finally:
        del os.environ["FIXED"]


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


BUILDING = """
import pytest
from tests.suite import counting

MARK

@pytest.mark.parametrize("n", range(3))
def test_traces(n):
    counting.COUNTS.traced()

def test_shares():
    with counting.shared("all"):
        counting.COUNTS.traced()
"""


@pytest.mark.parametrize("workers", [[], ["-n", "2", "--dist", "loadfile"]], ids=["alone", "workers"])
@pytest.mark.parametrize(
    ("mark", "shared", "said"),
    [
        ("pytestmark = pytest.mark.builds(3)", 1, ""),
        (
            "pytestmark = pytest.mark.builds(2)",
            1,
            "test_second.py traced 3 graphs (a build * counts 2) and declares 2:*",
        ),
        ("", 1, "test_second.py traced 3 graphs * declares 0:*"),
        ("pytestmark = pytest.mark.builds(3)", 0, "all, which tests share, traced 1 graphs, and * allows 0*"),
    ],
)
def test_more_than_was_declared_fails(
    suite: pytest.Pytester, workers: list[str], mark: str, shared: int, said: str
) -> None:
    write(suite, "test_second", BUILDING.replace("MARK", mark))
    (suite.path / "tests" / "budgets.toml").write_text(f"enforce = true\n[folders]\n[shared]\nall = {shared}\n")
    result = suite.runpytest_subprocess("--count-builds", *workers)
    assert result.ret == (pytest.ExitCode.TESTS_FAILED if said else pytest.ExitCode.OK), result.stdout.str()
    result.stdout.fnmatch_lines([f"*{said}"] if said else [])
    assert ["3", "tests/test_second.py"] in [line.split()[::2] for line in result.stdout.lines]


@pytest.mark.parametrize("allowed", [9, 8])
def test_declared_builds_are_held_against_the_folders_budget(suite: pytest.Pytester, allowed: int) -> None:
    write(suite, "test_first", FIRST.replace("def test_some", "@pytest.mark.builds(4)\ndef test_some"))
    write(suite, "test_second", BUILDING.replace("MARK", "pytestmark = [pytest.mark.builds(5)]"))
    (suite.path / "tests" / "budgets.toml").write_text(f"[folders]\ntests = {allowed}\n")
    result = suite.runpytest_subprocess("--check-budgets")
    assert result.ret == (allowed < 9), result.stdout.str()
    assert ("declare 9 builds, and tests/budgets.toml allows 8:" in result.stdout.str()) == (allowed < 9)
    result.assert_outcomes()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '"""Say it."""\n\nimport os\n\nX = 1\n',
            '"""Say it."""\n\nimport pytest\nimport os\n\npytestmark = MARK\n\nX = 1\n',
        ),
        ("import pytest\n\npytestmark = pytest.mark.builds(3)\n", "import pytest\n\npytestmark = MARK\n"),
        ("import pytest\npytestmark = pytest.mark.skip\n", "import pytest\npytestmark = [pytest.mark.skip, MARK]\n"),
        ("import pytest\npytestmark = [pytest.mark.skip]\n", "import pytest\npytestmark = [MARK, pytest.mark.skip]\n"),
        ("import pytest\n@pytest.mark.builds(3)\ndef test_it():\n    pass\n", None),
    ],
)
def test_counts_are_written_into_modules(tmp_path: Path, text: str, expected: str | None) -> None:
    path = tmp_path / "test_it.py"
    path.write_text(text)
    write_marks(path, 7)
    assert path.read_text() == (text if expected is None else expected.replace("MARK", "pytest.mark.builds(7)"))


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["/bin/speccompile", "build", Path("recipe.yaml")], True),
        ([sys.executable, "-m", "speccompile", "-q", "tune", "recipe.yaml"], True),
        ([sys.executable, "-c", "from speccompile.cli import main; main()", "build", "x"], True),
        ([sys.executable, "-c", "from speccompile.builder import build; build()"], True),
        ("speccompile compare recipe.yaml", True),
        (["speccompile", "plan", "recipe.yaml"], False),
        (["cmake", "--build", "build"], False),
        (["git", "-c", "a=b", "build"], False),
    ],
    ids=str,
)
def test_builds_in_other_processes_are_known(command: object, expected: bool) -> None:
    assert is_build(command) == expected


SERVING = """
import subprocess, sys, time

def test_serves(tmp_path):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(77)", NAME], start_new_session=True)
    (tmp_path / "file").write_text("here")
    open(NAME, "w").close()
    time.sleep(WAIT)
"""


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are found in /proc")
@pytest.mark.parametrize(
    ("number", "workers"),
    [
        (signal.SIGTERM, []),
        (signal.SIGINT, []),
        (signal.SIGKILL, []),
        (signal.SIGKILL, ["-n", "2"]),
        (None, ["-n", "2"]),
    ],
    ids=str,
)
def test_a_run_that_ends_leaves_nothing_behind(
    suite: pytest.Pytester, tmp_path: Path, number: signal.Signals | None, workers: list[str]
) -> None:
    sign, base = tmp_path / "is-serving", tmp_path / "base"
    base.mkdir()
    code = SERVING.replace("NAME", repr(str(sign))).replace("WAIT", "60" if number else "0")
    write(suite, "test_second", code)
    command = [sys.executable, "-m", "pytest", "tests/test_second.py", *workers]
    environment = os.environ | {"PYTEST_DEBUG_TEMPROOT": str(base)}
    with subprocess.Popen(
        command, cwd=suite.path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as run:
        until = time.monotonic() + 60
        while not sign.exists() and run.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        assert sign.exists()
        if number is not None:
            run.send_signal(number)
        said, _ = run.communicate(timeout=60)
    assert run.returncode == {signal.SIGKILL: -signal.SIGKILL, None: 0}.get(number, 2)
    if number is not signal.SIGKILL:
        assert f"killed, as the run left it behind: {sys.executable} -c import time; time.sleep(77)" in said.decode()
    until = time.monotonic() + 30
    while (left := processes(str(suite.path), str(sign))) or (number and list(base.glob("*/pytest-0"))):
        assert time.monotonic() < until, left
        time.sleep(0.1)


def processes(*words: str) -> list[str]:
    """Command lines of processes that have one of `words` in them, or as their folder."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if int(folder.name) != os.getpid() and any(
                word in (line, str((folder / "cwd").readlink())) or word in line for word in words
            ):
                found.append(line)
        except OSError:
            continue
    return found
