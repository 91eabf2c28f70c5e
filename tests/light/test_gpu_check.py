"""scripts/gpu/check where there is no GPU, and the table that it prints where there is one."""

import os
import runpy
import subprocess
from pathlib import Path
from xml.sax.saxutils import quoteattr

import pytest

from speccompile.engines.flavour import find_gpu
from tests.light.fake_cuda import FakeCuda

ROOT = Path(__file__).resolve().parents[2]
CHECK = ROOT / "scripts/gpu/check"


def case(name, inside=""):
    return f"<testcase name={quoteattr(name)}>{inside}</testcase>"


FIGURES = '<properties><property name="equal" value="20/20"/><property name="us" value="81.5"/></properties>'
RESULTS = "".join(
    [
        "<testsuites><testsuite>",
        case("test_tokens[a]", FIGURES),
        case("test_tokens[b]", '<failure message="assert 1 == 2&#10;where">trace</failure>'),
        case("test_numbers[a]", f'{FIGURES}<error message="no memory">trace</error>'),
        case("test_numbers[c]", '<skipped message="no GPU: none">place</skipped>'),
        "</testsuite></testsuites>",
    ]
)


@pytest.fixture
def table():
    return runpy.run_path(str(ROOT / "scripts/gpu/table.py"))


def test_the_table_has_a_line_for_every_test(table):
    assert table["render"](table["read_rows"](RESULTS)).splitlines() == [
        "test_tokens[a]   passed   equal 20/20, us 81.5",
        "test_tokens[b]   FAILED   assert 1 == 2",
        "test_numbers[a]  FAILED   no memory; equal 20/20, us 81.5",
        "test_numbers[c]  skipped  no GPU: none",
        "1 passed, 2 FAILED, 1 skipped",
    ]


@pytest.mark.parametrize(("kept", "code"), [("test_tokens[a]", 0), ("test_numbers[c]", 1)])
def test_a_run_in_which_nothing_passed_fails(table, tmp_path, monkeypatch, capsys, kept, code):
    results = tmp_path / "results.xml"
    inside = FIGURES if code == 0 else '<skipped message="no GPU: none">place</skipped>'
    results.write_text(f"<testsuite>{case(kept, inside)}</testsuite>")
    monkeypatch.setitem(table["main"].__globals__, "open_device", FakeCuda().open)
    assert table["main"](str(results)) == code
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "Fake GPU, compute capability 8.9"
    assert kept in out[-2]


def test_it_says_that_there_is_no_gpu():
    assert os.access(CHECK, os.X_OK)
    if find_gpu() is not None:
        pytest.skip("this machine has a GPU")
    run = subprocess.run([CHECK], capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (1, "")
    assert "this machine has no NVIDIA GPU with a driver that works" in run.stderr
    assert "hint: run it where `nvidia-smi` lists a GPU" in run.stderr
