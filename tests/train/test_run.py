"""`speccompile train`, whole: from a recipe and some texts to a folder that `build` takes."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from safetensors.numpy import load_file
from safetensors.torch import save_file

from speccompile.cli import main
from speccompile.drafters import DRAFTING_METHODS
from speccompile.errors import SpeccompileError, TrainingError
from speccompile.recipe import load_recipe, make_plan
from speccompile.recipe.training import plan_training
from speccompile.recipe.training_kind import SEVERAL, trainable
from speccompile.recipe.training_output import MADE_BY, REPORT
from speccompile.train import run
from speccompile.train.curves import read_curves
from speccompile.train.run import Report, Source, run_training
from tests import quantized_models, zoo
from tests.full_disk import largest_file
from tests.heads.mtp import mtp_target

pytestmark = pytest.mark.builds(1)

TEXT = "the self in the rest = on an error in the self = the one on the rest and in the end = an error "
LENGTH, STEPS = 24, 3


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make four layers of a few hundred thousand weights, and twenty texts beside them."""
    folder = tmp_path_factory.mktemp("training")
    zoo.lively(zoo.config("llama", num_hidden_layers=4)).save_pretrained(folder / "target")
    zoo.byte_tokenizer().save_pretrained(folder / "target")
    texts = [{"text": f"{number} {TEXT[number:]}"} for number in range(20)]
    (folder / "texts.jsonl").write_text("".join(json.dumps(text) + "\n" for text in texts))
    return folder


@pytest.fixture
def recipe(target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)

    def write(kind: str, **train) -> Path:
        section = {
            "data": {"files": str(target / "texts.jsonl"), "length": LENGTH, "held_out": 0.2},
            "schedule": {"steps": STEPS, "batch_size": 4},
            "evaluate": {"texts": 4, "prompts": 2, "max_new_tokens": 6, "compiled": False},
        }
        keys = {"name": "t", "target": {"model": str(target / "target")}, "drafter": {"kind": kind, "model": "new"}}
        keys |= {"cache": {"max_length": 64}, "train": section | train}
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(keys))
        return tmp_path / "recipe.yaml"

    return write


def trained(path: Path, *overrides: str, restart: bool = False) -> Report:
    written = load_recipe(path, overrides)
    plan = plan_training(written)
    report = run_training(plan, Source.of(written, overrides, plan), restart=restart)
    assert report is not None
    return report


NEW = [kind for kind in trainable() if kind not in SEVERAL and DRAFTING_METHODS[kind].training.makes_new]


@pytest.mark.parametrize("kind", NEW)
def test_what_training_leaves_is_what_the_recipe_plans_to_build(recipe, kind, tmp_path):
    path = recipe(kind)
    report = trained(path)
    assert (report.kind, report.steps) == (kind, STEPS)
    assert report.best["simulated"] >= 1
    assert report.best["compiled"] is None
    assert report.data["documents"] == 20
    assert report.data["learnt_from"] + report.data["held_out"] == report.data["texts"]
    plan = make_plan(load_recipe(path))
    reach = None if plan.drafter.head is None else plan.drafter.head.tokens
    assert (reach is not None) is DRAFTING_METHODS[kind].training.max_depth_is_trained
    assert plan.drafter.kind == kind
    said = json.loads((tmp_path / "new" / REPORT).read_text())
    assert (said["made_by"], said["steps"]) == (MADE_BY, STEPS)
    assert str(tmp_path) not in json.dumps(said)
    lines = read_curves(tmp_path / "build" / "t-train" / "curves.jsonl")
    (evaluation,) = (line for line in lines if line["kind"] == "evaluation")
    assert evaluation["step"] == STEPS
    assert evaluation["figures"]["loss"] > 0
    assert (tmp_path / "build" / "t-train" / "curves.html").is_file()
    assert not list(tmp_path.glob(".new*"))
    assert len({file.stat().st_mode for file in (tmp_path / "new").iterdir() if file.is_file()}) == 1


@pytest.mark.parametrize("method", ["awq", "fp8"])
def test_a_quantized_target_teaches_what_its_floats_do(recipe, target, tmp_path, method):
    exported = {}
    for name in ("quantized", "floats"):
        folder = shutil.copytree(target / "target", tmp_path / name)
        floats = quantized_models.quantize(folder, method)
        if name == "floats":
            shutil.rmtree(folder)
            shutil.copytree(target / "target", folder)
            save_file(floats, folder / "model.safetensors", {"format": "pt"})
        trained(recipe("eagle3"), f"target.model={folder}", f"drafter.model=new-{name}", restart=True)
        exported[name] = load_file(tmp_path / f"new-{name}" / "model.safetensors")
    assert exported["quantized"].keys() == exported["floats"].keys()
    for key, weight in exported["floats"].items():
        np.testing.assert_allclose(exported["quantized"][key], weight, rtol=1e-4, atol=1e-5, err_msg=key)


def test_what_is_left_has_learnt(recipe, tmp_path):
    trained(recipe("medusa", vocabulary=64))
    begun = load_file(tmp_path / "build" / "t-train" / "begin" / "model.safetensors")
    exported = load_file(tmp_path / "new" / "model.safetensors")
    assert begun.keys() == exported.keys()
    assert any(not np.array_equal(begun[name], exported[name]) for name in exported)


def test_an_interrupted_training_goes_on_to_the_same_bits(recipe, tmp_path, monkeypatch):
    path = recipe("eagle3", save={"every": 1e-9})
    trained(path)
    whole = load_file(tmp_path / "new" / "model.safetensors")
    weigh = run._TrainingRun.weigh

    def stop(self, step, part, parts):
        if step == 2:
            raise KeyboardInterrupt
        return weigh(self, step, part, parts)

    with monkeypatch.context() as patch:
        patch.setattr(run._TrainingRun, "weigh", stop)
        with pytest.raises(KeyboardInterrupt):
            trained(path, restart=True)
    report = trained(path)
    again = load_file(tmp_path / "new" / "model.safetensors")
    assert report.steps == STEPS
    assert all(np.array_equal(whole[name], again[name]) for name in whole)


@pytest.mark.parametrize(
    ("owner", "name", "folder"),
    [
        (run, "initial_drafter_folder", "build/t-train/begin"),
        (run._TrainingRun, "evaluate", "build/t-train/judged"),
        (run, "export_drafter", "new"),
    ],
)
def test_a_full_disk_is_one_error_and_the_rest_goes_on(recipe, tmp_path, monkeypatch, owner, name, folder):
    """Limit the size of files: the system refuses longer ones."""
    path, real = recipe("medusa"), getattr(owner, name)

    def limited(*arguments):
        with largest_file(50_000):
            return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, limited)
        with pytest.raises(TrainingError, match=f"{folder}: the disk is full: .* are free") as caught:
            trained(path)
    assert "--resume" in caught.value.hint
    assert not [*tmp_path.glob("**/.*"), *tmp_path.glob("new"), *tmp_path.glob("build/t-train/judged")]
    assert trained(path).steps == STEPS


def test_nothing_stays_of_what_is_built_for_the_evaluation(recipe, tmp_path, monkeypatch):
    """Delete the bundle of a killed process where the next training makes room."""

    def leave_half(module, job, about):
        (Path(job["work"]) / "compiled-x" / "bundle").mkdir(parents=True)
        raise KeyboardInterrupt

    path = recipe("medusa", evaluate={"texts": 4, "prompts": 2, "max_new_tokens": 6, "compiled": True})
    with monkeypatch.context() as patch:
        patch.setattr("speccompile.train.evaluate.compiled.run_apart", leave_half)
        patch.setattr(run.shutil, "rmtree", lambda *arguments, **options: None)  # as after SIGKILL
        with pytest.raises(KeyboardInterrupt):
            trained(path)
    assert list(tmp_path.glob("build/t-train/**/compiled-x"))
    trained(path, "train.evaluate.compiled=false")
    assert not list(tmp_path.glob("build/t-train/**/compiled-x"))


def test_another_training_is_not_gone_on_with(recipe):
    path = recipe("medusa")
    trained(path)
    with pytest.raises(SpeccompileError, match="learning_rate"):
        trained(path, "train.schedule.learning_rate=0.5")


def test_another_training_is_refused_before_anything_is_written(recipe, tmp_path):
    trained(recipe("medusa"))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "build/t-train").rglob("*")}
    with pytest.raises(SpeccompileError, match=r"is of another training.* drafter.kind: received 'eagle3', expected"):
        trained(recipe("eagle3"))
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "build/t-train").rglob("*")} == before


def test_a_training_may_go_on_for_longer(recipe):
    """Go on so long that it would have warmed up for longer, and evaluate at other times, but by the same rounds:
    scores of another depth are no match."""
    path = recipe("medusa")
    trained(path)
    with pytest.raises(SpeccompileError, match=r"evaluate\.depth: received 2, expected 4"):
        trained(path, f"train.schedule.steps={STEPS + 2}", "train.evaluate.depth=2")
    assert trained(path, "train.schedule.steps=40", "train.evaluate.every=1000").steps == 40


def test_a_drafter_is_trained_on(recipe, tmp_path):
    first = trained(recipe("model"))
    assert first.begun is None
    (tmp_path / "new").rename(tmp_path / "old")
    report = trained(recipe("model", begin="old"), restart=True)
    assert report.steps == STEPS
    assert (report.begun["step"], report.begun["simulated"]) == (0, first.best["simulated"])
    assert report.best["simulated"] >= report.begun["simulated"]
    assert (tmp_path / "old" / REPORT).is_file()


def test_features_may_lie_on_the_disk(recipe, target):
    data = {"files": str(target / "texts.jsonl"), "length": LENGTH, "held_out": 0.2}
    online = trained(recipe("medusa", data=data))
    kept = trained(recipe("medusa", data=data | {"features": "disk"}), restart=True)
    assert kept.best["simulated"] == pytest.approx(online.best["simulated"], abs=0.5)


@pytest.mark.sweep("a bundle that answers, as in test_answers.py", but=["transformers"])
@pytest.mark.parametrize("by", ["bundle", "transformers"])
def test_the_targets_own_answers_are_learnt(recipe, target, by):
    answers = {"by": by, "max_new_tokens": 8}
    data = {"files": str(target / "texts.jsonl"), "length": LENGTH, "held_out": 0.2, "answers": answers}
    report = trained(recipe("model", data=data, loss={"contexts": "mixed"}))
    given = report.answers["given"]
    assert given == sum(count for name, count in report.answers.items() if name != "given") > 0
    assert report.answers["done"] > 0


def test_the_targets_own_mtp_layers_are_trained_on(recipe, tmp_path):
    """Leave a copy of the target, which is target and drafter at once."""
    path = recipe("mtp")
    mtp_target(tmp_path / "whole", "mimo")
    zoo.byte_tokenizer().save_pretrained(tmp_path / "whole")
    assert trained(path, "target.model=whole").kind == "mtp"
    assert make_plan(load_recipe(path, ["target.model=new"])).drafter.kind == "mtp"


def test_prompts_that_another_drafter_answers_are_dropped(recipe, tmp_path):
    """Drop all answers for the target itself, which reproduces them; a random model reproduces next to none."""
    trained(recipe("model"))
    (tmp_path / "new").rename(tmp_path / "first")
    path = recipe("model", loss={"drop": "first"})
    setting = "drafter={kind: models, models: [first, second], tokens: 2}"
    report = trained(path, setting, restart=True)
    assert report.output.endswith("second")
    assert 0 < report.data["learnt_from"] <= report.data["texts"] - report.data["held_out"]
    data = {"by": "transformers", "max_new_tokens": 8}
    target = str(yaml.safe_load(path.read_text())["target"]["model"])
    with pytest.raises(SpeccompileError, match=r"train\.loss\.drop: .* gives the target's answer to all"):
        trained(path, setting, f"train.loss.drop={target}", f"train.data.answers={json.dumps(data)}", restart=True)


def command(*arguments) -> int:
    with pytest.raises(SystemExit) as leaving:
        main(["-q", "train", *map(str, arguments)])
    code = leaving.value.code
    assert isinstance(code, int)
    return code


@pytest.mark.sweep("builds in a process of its own, as test_evaluate_compiled.py does", but=["False"])
@pytest.mark.parametrize("compiled", [False, True])
def test_the_command_says_what_was_done_and_how_to_go_on(recipe, tmp_path, capsys, monkeypatch, compiled):
    path = recipe("medusa", evaluate={"texts": 4, "prompts": 2, "max_new_tokens": 6, "compiled": compiled})
    with monkeypatch.context() as patch:

        def stop(self, step, part, parts):
            raise KeyboardInterrupt

        patch.setattr(run._TrainingRun, "weigh", stop)
        assert command(path, "--set", "train.seed=1") == 130
        told = capsys.readouterr().err.splitlines()[-1]
        assert told.startswith("interrupted; ")
        assert told.endswith(f"speccompile train {path} --set train.seed=1 --resume")
    assert command(path, "--set", "train.seed=1", "--resume", "--json", "--threads", 1) == 0
    report = json.loads(capsys.readouterr().out)
    assert set(report) == {"recipe", "kind", "output", "steps", "seconds", "begun", "best", "curves", "data", "answers"}
    assert set(report["best"]) == {"step", "simulated", "compiled"}
    assert report["begun"] is None
    assert report["best"]["compiled"] == (pytest.approx(report["best"]["simulated"]) if compiled else None)
    assert command(path, "--set", "train.seed=1") == 2
    assert "is under way or done" in capsys.readouterr().err


def test_a_drafter_is_left_without_its_curves_and_without_a_round(recipe, tmp_path, capsys):
    """Finish where the curves were deleted, and where all answers have one token."""
    path = recipe("medusa")
    trained(path)
    shutil.rmtree(tmp_path / "new")
    (tmp_path / "build" / "t-train" / "curves.jsonl").unlink()
    report = trained(path)
    assert report.best["simulated"] >= 1
    assert (tmp_path / "new" / REPORT).is_file()
    assert command(path, "--restart", "--set", "train.evaluate.max_new_tokens=1") == 0
    assert "no tokens a round simulated" in capsys.readouterr().out


def test_what_is_missing_of_the_extra_is_said_before_any_work(recipe, tmp_path, capsys, monkeypatch):
    path = recipe("medusa")
    monkeypatch.setitem(sys.modules, "accelerate", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "accelerate" else object())
    assert command(path) == 1
    assert "pip install 'speccompile[train]'" in capsys.readouterr().err
    assert not (tmp_path / "build").exists()


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
