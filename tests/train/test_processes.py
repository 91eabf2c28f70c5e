"""Several processes, by gloo, give what one does; each goes on from the other's checkpoints."""

import json
import sys

import pytest
import torch
from safetensors.torch import load_file

from speccompile.errors import MissingPackageError, SpeccompileError, UsageError
from speccompile.train.curves import read_curves
from speccompile.train.processes import Processes
from tests.train.launching import launch
from tests.train.toy_training import run, run_until_it_fails

PAIR = "a pair of processes, each of which imports torch and accelerate"


def launched(folder, count=2, launcher=(), check=True, **keys):
    """Return a training of the toy by so many processes."""
    return several(({"folder": str(folder), **keys},), count, launcher, check)


def several(trainings, count=2, launcher=(), check=True):
    """Run trainings one after the other, by the same processes."""
    return launch("tests.train.toy_training", *map(json.dumps, trainings), count=count, launcher=launcher, check=check)


def tensors(folder):
    latest = folder / "checkpoints/latest"
    return load_file(latest / "learner.safetensors") | load_file(latest / "optimizers.safetensors")


def assert_alike(one, other, rtol=1e-3, atol=1e-5):
    """Compare weights and losses to rounding; a step of Adam divides by numbers near zero, which widens it."""
    ours, theirs = tensors(one), tensors(other)
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        torch.testing.assert_close(value, theirs[name], rtol=rtol, atol=atol, msg=lambda text, name=name: name + text)
    losses, expected = (
        [line["loss"] for line in read_curves(each / "curves.jsonl") if line["kind"] == "steps"]
        for each in (one, other)
    )
    assert len(losses) == 20
    assert losses == pytest.approx(expected, rel=max(rtol / 100, atol))


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Return trainings by one process."""
    folder = tmp_path_factory.mktemp("alone")
    run(folder / "adamw", with_curves=True)
    run(folder / "muon", with_curves=True, matrix_rate=0.02)
    return folder


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """Return what two processes did, which were started once: a training in parts, one that goes on from one process's
    with shared weights, and one whose loss is none, which ends them. Their folders, and what they said."""
    folder = tmp_path_factory.mktemp("together")
    run_until_it_fails(folder / "on", with_curves=True)
    done = several(
        (
            {"folder": str(folder / "parts"), "with_curves": True, "accumulate": 4},
            {"folder": str(folder / "on"), "with_curves": True, "sharded": True},
            {"folder": str(folder / "nan"), "nan_at": 3, "save_every": 0},
        ),
        check=False,
    )
    return folder, done


@pytest.mark.sweep(PAIR)
def test_two_processes_give_in_parts_what_one_does(together, alone):
    folder, done = together
    assert (folder / "parts/checkpoints/latest").exists(), done.stderr
    assert_alike(folder / "parts", alone / "adamw")


@pytest.mark.sweep(PAIR)
def test_two_processes_that_share_weights_go_on_where_one_stopped(together, alone):
    folder, done = together
    assert (folder / "nan/checkpoints/latest").exists(), done.stderr
    assert_alike(folder / "on", alone / "adamw")


@pytest.mark.sweep(PAIR)
def test_a_loss_that_is_none_ends_all_processes_with_the_part_named(together):
    folder, done = together
    assert done.returncode != 0
    said = [line for line in done.stderr.splitlines() if "TrainingError: step 3: the loss is nan" in line]
    assert said
    assert all("its samples: " in line for line in said)
    assert json.loads((folder / "nan/checkpoints/latest/state.json").read_text())["step"] == 3


@pytest.mark.sweep("one more pair of processes for each setting")
@pytest.mark.parametrize("settings", [{}, {"evaluate_every": 0}, {"checkpointing": True}])
def test_two_processes_give_what_one_does(tmp_path, alone, settings):
    launched(tmp_path, with_curves=True, **settings)
    if "evaluate_every" in settings:
        kinds = [line["kind"] for line in read_curves(tmp_path / "curves.jsonl")]
        assert kinds == ["steps", "evaluation"] * 20
        assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir())[:2] == ["best", "latest"]
        return
    assert_alike(tmp_path, alone / "adamw")


@pytest.mark.sweep("the same pair of processes, started by accelerate")
def test_accelerate_launches_it_as_well(tmp_path, alone):
    launcher = ("accelerate.commands.launch", "--cpu", "--num_processes", "2", "--num_machines", "1",
                "--main_process_port", "0", "--mixed_precision", "no", "--dynamo_backend", "no")  # fmt: skip
    launched(tmp_path, launcher=launcher, with_curves=True)
    assert_alike(tmp_path, alone / "adamw")


@pytest.mark.sweep("the same pair of processes, by another optimizer")
def test_muon_by_two_processes_is_that_of_one(tmp_path, alone):
    launched(tmp_path, with_curves=True, matrix_rate=0.02)
    assert_alike(tmp_path, alone / "muon")


@pytest.mark.sweep("the same pair of processes, by another optimizer")
def test_fsdp_gives_what_one_process_does(tmp_path, alone):
    launched(tmp_path, with_curves=True, sharded=True, evaluate_every=1e9)
    assert_alike(tmp_path, alone / "adamw")
    (evaluation,) = [line for line in read_curves(tmp_path / "curves.jsonl") if line["kind"] == "evaluation"]
    stored = load_file(tmp_path / "checkpoints/latest/learner.safetensors")
    frozen = 3.0
    assert evaluation["figures"]["size"] == pytest.approx(frozen + sum(float(v.abs().sum()) for v in stored.values()))


@pytest.mark.sweep("the same pair of processes, by another optimizer")
def test_muon_under_fsdp_sees_whole_matrices(tmp_path, alone):
    """Compare orthogonal updates in bfloat16, where products of parts round otherwise: by 2 % of what changed. Parts of
    a matrix would give something else altogether."""
    launched(tmp_path, with_curves=True, sharded=True, matrix_rate=0.02)
    assert_alike(tmp_path, alone / "muon", rtol=0, atol=5e-3)


@pytest.mark.sweep("a pair of processes for each case")
@pytest.mark.parametrize(("first", "sharded"), [(1, False), (2, True), (2, False)])
def test_another_number_of_processes_goes_on(tmp_path, alone, first, sharded):
    if first == 1:
        run_until_it_fails(tmp_path, with_curves=True)
        launched(tmp_path, with_curves=True, sharded=sharded)
    else:
        done = launched(tmp_path, check=False, with_curves=True, sharded=sharded, save_every=0, fail_at=10)
        assert "Stopped" in done.stderr
        assert json.loads((tmp_path / "checkpoints/latest/state.json").read_text())["step"] == 10
        run(tmp_path, with_curves=True)
    assert_alike(tmp_path, alone / "adamw")


@pytest.mark.sweep("as above, for an error that is told before the first step")
def test_an_error_of_the_first_is_that_of_all(tmp_path):
    run(tmp_path)
    done = launched(tmp_path, check=False, plan={"seed": 1})
    assert done.returncode != 0
    assert "RecipeError" in done.stderr
    assert "seed: received 1, expected 7" in done.stderr


def test_a_precision_of_the_launch_is_refused(monkeypatch):
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "fp16")
    with pytest.raises(UsageError, match="--mixed_precision fp16"):
        Processes()


def test_fsdp_without_devices_is_refused(monkeypatch):
    """accelerate ignores the option silently."""
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setenv("FSDP_VERSION", "2")
    with pytest.raises(UsageError, match="FSDP, for which accelerate has no way with NO"):
        Processes()


def test_accelerate_that_is_missing_is_one_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "accelerate", None)
    with pytest.raises(MissingPackageError, match="without accelerate, expected the extra 'train'") as caught:
        Processes()
    assert caught.value.hint == "pip install 'speccompile[train]'"


def test_alone_the_work_of_the_first_is_done_here():
    def fails():
        raise SpeccompileError("so", hint="do")

    processes = Processes()
    assert processes.run_on_main(lambda: 3) == 3
    assert processes.all_gather("x") == ["x"]
    assert processes.broadcast(1.5, 2.0) == [1.5, 2.0]
    with pytest.raises(SpeccompileError, match="so"):
        processes.run_on_main(fails)
