"""`speccompile train` and what `plan` shows of it, as their users see them: nothing is trained here."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from tests.light.test_cli import modules_after

pytestmark = pytest.mark.builds(4)


@pytest.fixture
def recipe(tmp_path, make_checkpoint, monkeypatch):
    """Return a recipe whose drafter is still to be trained."""
    monkeypatch.chdir(tmp_path)
    sizes = {"hidden_size": 32, "num_hidden_layers": 8, "num_attention_heads": 4, "intermediate_size": 64}
    make_checkpoint(tmp_path / "target", **sizes)
    (tmp_path / "docs.md").write_text("def return self\n")
    path = tmp_path / "recipe.yaml"
    train = {"data": {"files": "docs.md"}, "schedule": {"seconds": 60}, "shape": {"layers": 1}}
    drafter = {"kind": "eagle3", "model": "new"}
    path.write_text(yaml.safe_dump({"name": "t", "target": {"model": "target"}, "drafter": drafter, "train": train}))
    return path


def test_the_help_shows_the_smallest_section_and_how_to_launch(command_line):
    code, out, _ = command_line("train", "--help")
    assert code == 0
    assert yaml.safe_load(out[out.index("train:\n") : out.index("The JSON object")])["train"]["schedule"]
    for words in ("--resume", "--restart", "--work", "--threads", "--tensorboard", "accelerate launch"):
        assert words in out


def test_the_help_imports_nothing_heavy():
    assert not modules_after("train", "--help") & {"torch", "transformers", "accelerate", "datasets", "pydantic"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "train=null"], "train: received nothing, expected a section that names the training data"),
        (["--set", "train.schedule.seconds=0"], "train.schedule.seconds: received 0"),
        (["--set", "train.schedule=null"], "train.schedule: received no budget"),
        (["--set", "drafter.kind=prompt_lookup"], "which cannot be trained: it has no weights"),
        (["--resume", "--restart"], "received --resume and --restart, expected one of the two"),
        (["--resume"], "where no training is under way"),
        (["--work", "target"], "--work: received 'target', a folder that holds something else"),
        (["--thread", "2"], "No such option '--thread'."),
    ],
)
def test_wrong_input_ends_in_one_error_and_a_hint_before_any_work(command_line, recipe, arguments, message, tmp_path):
    left = sorted(tmp_path.rglob("*"))
    code, out, err = command_line("train", recipe, *arguments)
    assert (code, out) == (2, "")
    assert [line.partition(": ")[0] for line in err.splitlines()] == ["error", "hint", "help"]
    assert message in err
    assert sorted(tmp_path.rglob("*")) == left


@pytest.mark.parametrize(
    ("left", "said"),
    [
        ([], "interrupted; nothing was kept\n"),
        (
            ["plan.json"],
            "the data and answers so far are kept, to go on with it: speccompile train recipe.yaml --resume\n",
        ),
        (["plan.json", "checkpoints/step-1"], "what the last checkpoint has is kept, to go on with it: speccompile"),
    ],
)
def test_an_interrupt_says_what_is_kept(command_line, recipe, monkeypatch, left, said):
    def interrupted(*_, **__):
        for name in left:
            Path("build/t-train", name).parent.mkdir(parents=True, exist_ok=True)
            Path("build/t-train", name).write_text("{}")
        raise KeyboardInterrupt

    run = SimpleNamespace(Source=SimpleNamespace(of=lambda *_: None), run_training=interrupted)
    monkeypatch.setitem(sys.modules, "speccompile.train.run", run)
    code, out, err = command_line("train", "recipe.yaml")
    assert (code, out) == (130, "")
    assert said in err


def test_plan_shows_the_training_before_there_is_a_drafter(command_line, recipe):
    code, out, err = command_line("plan", recipe, "--set", "train.loss.kind=hybrid")
    assert (code, err) == (0, "")
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if not line.startswith(" ")}
    assert rows["train.loss.kind"] == ["hybrid", "--set"]
    assert rows["train.schedule.seconds"] == ["60", "recipe"]
    assert rows["train.shape.layers"] == ["1", "recipe"]
    assert rows["train.shape.heads"] == ["4", "default"]
    assert rows["train.data.answers.by"] == ["given", "default"]
    assert "train.loss.beta" not in rows
    assert "engines.0.provider" not in rows
    assert out.splitlines()[-1].startswith("note: what build would do is planned when the drafter is there: ")
    data = json.loads(command_line("plan", recipe, "--json")[1])
    assert set(data) == {"training", "notes"}
    assert data["training"]["data"]["kind"] == "text"


@pytest.mark.parametrize(
    ("settings", "absent"),
    [
        (("drafter.kind=model", "train.loss.kind=ce"), {"hard", "decay", "depth_weights", "beta", "anchors", "share"}),
        (("drafter.kind=dflash",), {"decay", "beta", "share"}),
    ],
)
def test_plan_leaves_out_what_means_nothing(command_line, recipe, settings, absent):
    """Show no key that the recipe must not have either."""
    out = command_line("plan", recipe, *(word for each in settings for word in ("--set", each)))[1]
    names = {"kind", "hard", "decay", "depth_weights", "beta", "anchors", "share", "contexts"}
    shown = {line.split()[0].removeprefix("train.loss.") for line in out.splitlines() if line.startswith("train.loss.")}
    assert names - shown == absent


def test_plan_shows_both_where_the_drafter_is_there(command_line, recipe, make_checkpoint, tmp_path):
    make_checkpoint(tmp_path / "old", hidden_size=16)
    settings = ("--set", "drafter={kind: model, model: old}", "--set", "train.shape=null")
    code, out, _ = command_line("plan", recipe, *settings)
    assert code == 0
    assert "engines.0.provider" in out
    assert "note: train would refuse: " in out
    assert "a folder that holds something else" in out
    data = json.loads(command_line("plan", recipe, *settings, "--json")[1])
    assert data["training"] is None
    assert data["drafter"]["kind"] == "model"
    (tmp_path / "old" / "training.json").write_text('{"made_by": "speccompile train"}')
    data = json.loads(command_line("plan", recipe, *settings, "--json")[1])
    assert data["training"]["kind"] == "model"
    assert data["notes"] == []
    assert "train.schedule.seconds" in command_line("plan", recipe, *settings)[1]


def test_plan_refuses_what_train_refuses_where_there_is_no_drafter(command_line, recipe):
    code, out, err = command_line("plan", recipe, "--set", "train.vocabulary=9")
    assert (code, out) == (2, "")
    assert "train.vocabulary: received 9" in err


def test_planning_a_training_imports_no_compiler(recipe):
    heavy = {"torch", "transformers", "onnx", "onnxruntime", "huggingface_hub", "accelerate", "datasets"}
    assert not modules_after("plan", recipe) & heavy


def test_the_package_is_a_program():
    """Run it as `accelerate launch -m speccompile train` does."""
    ran = subprocess.run([sys.executable, "-m", "speccompile", "train", "--help"], capture_output=True, text=True)
    assert ran.returncode == 0
    assert "Usage: speccompile train" in ran.stdout
