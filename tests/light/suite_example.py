"""A small suite in a checkout of its own, with the plugin that runs this one."""

import os
import re
import subprocess
from pathlib import Path

import pytest

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
    """Return a small suite with the plugin, in a checkout of its own."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in [name for name in os.environ if name.startswith(("PYTEST_", "GIT_"))]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("CI", raising=False)  # pytest's summary would say an error once more
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # hypothesis and others take a second to load
    pytester.makeconftest(CONFTEST)
    pytester.makepyprojecttoml("[tool.pytest.ini_options]\naddopts = '--strict-markers -p xdist -p no:schemathesis'")
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
    """Return the tests that pass in a run, by name, in the order in which they ran."""
    result = suite.runpytest_subprocess("-v", *options)
    assert result.ret == 0, result.stdout.str() + result.stderr.str()
    return re.findall(r"^tests/(?:\w+)\.py::(\S+) PASSED", result.stdout.str(), re.MULTILINE)
