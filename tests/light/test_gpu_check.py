"""scripts/gpu where there is no GPU: what it says, the table that it prints where there is one, what it would train."""

import os
import runpy
import subprocess
from pathlib import Path
from xml.sax.saxutils import quoteattr

import pytest

from speccompile.compiler.engines.flavour import find_gpu
from speccompile.recipe import load_recipe
from speccompile.recipe.training import plan_training
from tests.light.fake_cuda import FakeCuda

ROOT = Path(__file__).resolve().parents[2]
CHECK, TRAIN = ROOT / "scripts/gpu/check", ROOT / "scripts/gpu/train"


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


@pytest.mark.parametrize("script", [CHECK, TRAIN])
def test_it_says_that_there_is_no_gpu(script):
    assert os.access(script, os.X_OK)
    if find_gpu() is not None:
        pytest.skip("this machine has a GPU")
    run = subprocess.run([script], capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (1, "")
    assert "this machine has no NVIDIA GPU with a driver that works" in run.stderr
    assert "hint: run it where `nvidia-smi` lists a GPU" in run.stderr


def test_what_a_gpu_trains_is_planned(tmp_path, monkeypatch):
    """Plan with a stand-in for the texts, which are made where they are trained on."""
    drafters = runpy.run_path(str(ROOT / "scripts/gpu/drafters.py"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.jsonl").write_text('{"prompt": "def main():"}\n')
    for kind, drafter in drafters["DRAFTERS"].items():
        texts = f"train.data.files={tmp_path / 'texts.jsonl'}"
        overrides = (*drafters["settings"](kind, 7, tmp_path / "out"), texts)
        plan = plan_training(load_recipe(ROOT / drafter.recipe, overrides))
        assert (plan.kind, plan.schedule.seconds, plan.schedule.batch_size) == (kind, 7, 128)
        assert plan.output == tmp_path / "out" / kind
