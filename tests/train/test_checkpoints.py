"""Folders that are whole or not there, whatever happens, and errors before it is too late."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from speccompile.bundle.folders import lock_folder
from speccompile.errors import CheckpointError, RecipeError, TrainingError
from speccompile.train import checkpoints as module
from speccompile.train.checkpoints import Checkpoints, load_student
from tests.full_disk import largest_file
from tests.train.toy_training import Toy, ToyWeigh, run, run_until_it_fails

ROOT = Path(__file__).resolve().parents[2]


def names(folder):
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


def test_the_last_ones_stay_and_the_best(tmp_path):
    trained, _ = run(tmp_path, evaluate_every=0, scores={4: 2.5, 9: 2.5, 12: 2.0}, keep=3)
    assert names(tmp_path) == [
        "best", "latest", "step-0000000004", "step-0000000018", "step-0000000019", "step-0000000020",
    ]  # fmt: skip
    assert (trained.best.name, trained.score) == ("step-0000000004", 2.5)
    folder = tmp_path / "checkpoints"
    assert [(folder / name).readlink().name for name in ("best", "latest")] == ["step-0000000004", "step-0000000020"]


def test_the_best_is_remembered_where_a_training_goes_on(tmp_path):
    run_until_it_fails(tmp_path, 10, evaluate_every=0, scores={4: 2.5}, keep=1)
    (tmp_path / "checkpoints/best").unlink()  # as a kill between two renames leaves it
    trained, _ = run(tmp_path, evaluate_every=1e9, keep=1)
    assert trained.best.name == "step-0000000004"
    assert (tmp_path / "checkpoints/best").readlink() == Path("step-0000000004")
    best = Toy()
    load_student(best, trained.best)
    assert not torch.equal(best.hidden.weight, Toy().hidden.weight)


def test_what_a_killed_process_left_is_removed(tmp_path):
    run_until_it_fails(tmp_path, 5)
    for name in (".step-0000000006.part", ".step-0000000001.old"):
        (tmp_path / "checkpoints" / name).mkdir()
        (tmp_path / "checkpoints" / name / "learner.safetensors").write_bytes(b"half")
    (tmp_path / "checkpoints/.latest.link").symlink_to("nowhere")
    trained, _ = run(tmp_path)
    assert trained.steps == 20
    assert names(tmp_path) == ["latest", "step-0000000005", "step-0000000020"]


def test_one_process_trains_in_a_folder(tmp_path):
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    handle = lock_folder(folder)
    try:
        with pytest.raises(TrainingError, match="another process trains here"):
            run(tmp_path)
    finally:
        os.close(handle)
    assert run(tmp_path)[0].steps == 20


def test_another_plan_is_refused_with_all_that_differs(tmp_path):
    plan = {"loss": {"kind": "fkl", "decay": 0.8}, "data": {"files": ["a.jsonl"]}, "seed": 0}
    run_until_it_fails(tmp_path, 5, plan=plan)
    before = names(tmp_path)
    other = {
        "loss": {"kind": "tvd", "decay": 0.8},
        "data": {"files": ["a.jsonl", "b.jsonl"]},
        "seed": 0,
        "sizes": {"layers": 2},
    }
    with pytest.raises(RecipeError) as caught:
        run(tmp_path, plan=other)
    message = str(caught.value)
    assert "data.files: received ['a.jsonl', 'b.jsonl'], expected ['a.jsonl']" in message
    assert "loss.kind: received 'tvd', expected 'fkl'" in message
    assert "sizes.layers: received 2, expected nothing" in message
    assert "decay" not in message
    assert "seed" not in message
    assert names(tmp_path) == before
    assert run(tmp_path, plan=json.loads(json.dumps(plan)))[0].steps == 20


def damaged(folder, change):
    """Write the last checkpoint with other tensors."""
    path = folder / "checkpoints/latest/learner.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda tensors: tensors.pop("norm.weight"), "norm.weight is missing"),
        (lambda tensors: tensors.update(stray=torch.ones(2)), "stray is no tensor of this student"),
        (
            lambda tensors: tensors.update({"norm.bias": torch.ones(2)}),
            r"norm.bias is float32 \[2\], expected float32 \[16\]",
        ),
        (
            lambda tensors: tensors.update({"norm.bias": torch.ones(16).half()}),
            r"norm.bias is float16 \[16\], expected float32",
        ),
    ],
)
def test_weights_load_strictly(tmp_path, change, words):
    run_until_it_fails(tmp_path, 5)
    damaged(tmp_path, change)
    with pytest.raises(CheckpointError, match=words):
        run(tmp_path)


@pytest.mark.parametrize("name", ["learner.safetensors", "optimizers.safetensors", "state.json"])
def test_a_file_that_is_cut_is_named(tmp_path, name):
    run_until_it_fails(tmp_path, 5)
    path = tmp_path / "checkpoints/latest" / name
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(CheckpointError, match=name) as caught:
        run(tmp_path)
    assert "remove this checkpoint" in caught.value.hint


def test_optimizers_of_another_kind_are_refused(tmp_path):
    run_until_it_fails(tmp_path, 5)
    with pytest.raises(CheckpointError, match=r"has .* of adamw for back.weight, which muon trains"):
        run(tmp_path, matrix_rate=0.02)


def test_a_disk_with_too_little_room_is_refused_before_any_step(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda folder: usage._replace(free=10_000))
    student = Toy()
    weigh = ToyWeigh(student, 8)
    with pytest.raises(
        TrainingError, match=r"received 0.01 MB free, expected .* for the next checkpoints, of 0.0.* MB"
    ):
        run(tmp_path, student=student, weigh=weigh)
    assert weigh.calls == []


def test_the_room_that_is_asked_for_is_what_checkpoints_take(tmp_path):
    """Tensors alone are estimated; headers and the state are a few kB."""
    wanted = []

    class Counting(Checkpoints):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            wanted.append(self.size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("speccompile.train.loop.Checkpoints", Counting)
        run(tmp_path / "adamw")
        run(tmp_path / "muon", matrix_rate=0.02)
    for size, name in zip(wanted, ("adamw", "muon"), strict=True):
        path = tmp_path / name / "checkpoints/latest"
        stored = {**load_file(path / "learner.safetensors"), **load_file(path / "optimizers.safetensors")}
        held = sum(value.nbytes for key, value in stored.items() if "/step/" not in key)
        assert size == held


def test_the_room_for_the_next_one_is_looked_for_after_each(tmp_path, monkeypatch):
    usage, free = shutil.disk_usage(tmp_path), [10**9, 10**9, 10**9, 100]
    monkeypatch.setattr(module.shutil, "disk_usage", lambda folder: usage._replace(free=free.pop(0) if free else 100))
    with pytest.raises(TrainingError, match="not enough disk space"):
        run(tmp_path, save_every=0)
    assert names(tmp_path) == ["latest", "step-0000000002", "step-0000000003"]


def started(folder, **keys):
    wanted = json.dumps({"folder": str(folder), **keys})
    return subprocess.Popen(
        [sys.executable, "-m", "tests.train.toy_training", wanted], cwd=ROOT, text=True, stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def test_a_disk_that_is_full_leaves_the_checkpoint_before(tmp_path):
    """Limit the size of files, as a full disk or a quota does."""
    run_until_it_fails(tmp_path, 5)
    before = names(tmp_path)
    with largest_file(2000), pytest.raises(TrainingError, match="could not be written: the disk is full"):
        run(tmp_path, save_every=0)
    assert names(tmp_path) == before
    assert run(tmp_path)[0].steps == 20


@pytest.mark.sweep("two processes that import torch; in this one the same is in the first tier")
def test_a_process_that_was_killed_and_one_whose_disk_is_full_leave_the_checkpoint_before(tmp_path):
    run_one = started(tmp_path, save_every=0, kill_at=5)
    assert run_one.wait() == -signal.SIGKILL
    before = names(tmp_path)
    full = started(tmp_path, save_every=0, largest_file=2000)
    _, said = full.communicate()
    assert full.returncode == 1
    assert "TrainingError" in said
    assert "could not be written: the disk is full" in said
    assert names(tmp_path) == before


@pytest.mark.parametrize("kills", [1, pytest.param(3, marks=pytest.mark.sweep("a process for each kill"))])
def test_a_kill_at_any_moment_loses_one_interval_at_most(tmp_path, kills):
    """Killed at random while it saves after every step, over and over; each checkpoint is whole, and the end is that of
    a training that was never killed."""
    steps, moments = 400 if kills > 1 else 150, random.Random(0)
    for _ in range(kills):
        process = started(tmp_path / "killed", steps=steps, save_every=0)
        reached = json_step(tmp_path / "killed")
        while json_step(tmp_path / "killed") <= reached and process.poll() is None:
            time.sleep(0.01)
        time.sleep(moments.uniform(0, 0.3))
        process.kill()
        process.communicate()
        if process.returncode == 0:
            break
        step = json_step(tmp_path / "killed")
        assert step > reached
        for folder in (tmp_path / "killed/checkpoints").glob("step-*"):
            load_student(Toy(), folder)
    trained, _ = run(tmp_path / "killed", steps=steps)
    straight, _ = run(tmp_path / "straight", steps=steps)
    for name in ("learner.safetensors", "optimizers.safetensors"):
        assert (trained.last / name).read_bytes() == (straight.last / name).read_bytes()


def json_step(folder):
    """Return the step of the newest whole checkpoint."""
    found = sorted((folder / "checkpoints").glob("step-*")) if folder.exists() else []
    return int(found[-1].name.removeprefix("step-")) if found else 0


def test_a_step_that_is_evaluated_after_it_was_saved_is_saved_once_more(tmp_path):
    run_until_it_fails(tmp_path, 19)
    run(tmp_path, save_every=0, evaluate_every=1e9)
    state = json.loads((tmp_path / "checkpoints/latest/state.json").read_text())
    assert (state["step"], state["score"], state["best"]) == (20, -20.0, {"step": 20, "score": -20.0})
    assert not [name for name in names(tmp_path) if name.startswith(".")]


def test_the_state_says_what_was_asked_for(tmp_path):
    trained, _ = run(tmp_path)
    state = json.loads((trained.last / "state.json").read_text())
    assert state["plan"] == {"loss": {"kind": "ce"}, "seed": 7}
    assert set(load_file(trained.last / "learner.safetensors")) == {
        "embed_tokens.weight", "hidden.weight", "hidden.bias", "norm.weight", "norm.bias", "back.weight",
        "lm_head.weight", "ids",
    }  # fmt: skip
