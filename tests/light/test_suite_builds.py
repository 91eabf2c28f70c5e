"""The plugin that runs this suite: what tests may trace and build."""

import sys
from pathlib import Path

import pytest

from tests.light.suite_example import FIRST, write
from tests.suite.counting import is_build
from tests.suite.declared import write_marks

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


@pytest.mark.sweep("three processes each", but=["-alone", "declares 2:*-workers"])
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


def test_marks_and_budgets_are_raised_to_what_was_counted(suite: pytest.Pytester) -> None:
    write(suite, "test_second", BUILDING.replace("MARK", "pytestmark = pytest.mark.builds(1)"))
    budgets = suite.path / "tests" / "budgets.toml"
    budgets.write_text("# Why.\nenforce = true\n[shared]\nother = 7\n")
    assert suite.runpytest_subprocess("--write-budgets").ret == pytest.ExitCode.TESTS_FAILED
    assert "pytestmark = pytest.mark.builds(3)" in (suite.path / "tests" / "test_second.py").read_text()
    assert (
        budgets.read_text() == '# Why.\nenforce = true\n\n[folders]\n"tests" = 3\n\n[shared]\n"all" = 1\n"other" = 7\n'
    )
    assert suite.runpytest_subprocess().ret == suite.runpytest_subprocess("--check-budgets").ret == 0


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
        ([sys.executable, "-c", "from speccompile.compiler.build import build; build()"], True),
        ("speccompile compare recipe.yaml", True),
        (["speccompile", "plan", "recipe.yaml"], False),
        (["cmake", "--build", "build"], False),
        (["git", "-c", "a=b", "build"], False),
    ],
    ids=str,
)
def test_builds_in_other_processes_are_known(command: object, expected: bool) -> None:
    assert is_build(command) == expected
