"""Where a training stands, in folders that are whole or not there: from the last of them it goes on, to the same bits.

    <folder>/step-0000001200/learner.safetensors      the trained weights, float32, and what buffers hold
                             optimizers.safetensors   what the optimizers keep, by "optimizer/key/parameter"
                             state.json               step, seconds, what the watch saw, the best, and of which plan
    <folder>/latest, best                             links to the last one, and to the one that was judged best

A folder is written under a hidden name, brought to the disk and renamed: a process that is killed at any moment leaves
the one before. Random numbers are functions of the seed, the step and the part, so there is no state of theirs.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from speccompile.bundle.folders import lock_folder, replace_folder, sync
from speccompile.errors import CheckpointError, RecipeError, TrainingError
from speccompile.machine.resource_errors import is_disk_full
from speccompile.recipe.resources import gigabytes

LEARNER, OPTIMIZERS, STATE = "learner.safetensors", "optimizers.safetensors", "state.json"
LATEST, BEST = "latest", "best"

_FOLDER = re.compile(r"step-(\d{10})")
_HIDDEN = re.compile(r"\.step-\d{10}\.(part|old)|\.(latest|best)\.link")


@dataclass(frozen=True)
class BestStep:
    """The step whose checkpoint was judged best so far, and its score, of which more is better."""

    step: int
    score: float


@dataclass(frozen=True)
class TrainingState:
    """step: how many were done. elapsed: seconds that they took. watch: as `Watch` gives and takes it. best: of all
    checkpoints so far. score: of this one, None where it was not judged. plan: which training this is."""

    step: int = 0
    elapsed: float = 0.0
    watch: Mapping[str, Any] = field(default_factory=dict)
    best: BestStep | None = None
    score: float | None = None
    plan: Mapping[str, Any] = field(default_factory=dict)


class Checkpoints:
    """Those of one training, of which the last `keep` stay, and the best. One process uses it at a time."""

    def __init__(self, folder: Path, keep: int, plan: Mapping[str, Any], size: int) -> None:
        """plan: which training this is, as JSON has it. size: bytes of one, about."""
        self.folder, self.keep, self.plan, self.size = folder, keep, plan, size
        self._lock: int | None = None

    def open(self) -> Path | None:
        """Take the folder, remove what a killed process left, and say where to go on from: None from the beginning.

        Raises TrainingError where another process trains here or the disk has too little room for all that will be
        kept, RecipeError where a checkpoint of another plan lies here, CheckpointError where it cannot be read.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = lock_folder(self.folder)
        if self._lock is None:
            raise TrainingError(
                f"{self.folder}: another process trains here, expected none",
                hint="wait for it, or give another work folder with --work",
            )
        for path in self.folder.iterdir():
            if _HIDDEN.fullmatch(path.name):
                _remove(path)
        there = list(self._folders())
        self._check_room(max(self.keep + 2 - len(there), 1))
        if not there:
            return None
        state = read_state(there[-1])
        check_same(state.plan, self.plan, there[-1])
        self._link(LATEST, there[-1].name)
        if state.best is not None:
            self._link(BEST, _name(state.best.step))
        return there[-1]

    def close(self) -> None:
        """Let others in."""
        if self._lock is not None:
            os.close(self._lock)
        self._lock = None

    def path(self, step: int) -> Path:
        """Of the checkpoint behind so many steps."""
        return self.folder / _name(step)

    def save(self, state: TrainingState, learner: Mapping[str, Tensor], optimizers: Mapping[str, Tensor]) -> Path:
        """Write one, and remove those that need not stay. Raises TrainingError where the disk refuses it, or has no
        room for the next one: this one is then written, and no interval is lost."""
        path = self.path(state.step)
        part = self.folder / f".{path.name}.part"
        try:
            _write(part, state, learner, optimizers)
            replace_folder(part, path)  # there is one where a step was judged after it was saved
            sync(self.folder)
            shutil.rmtree(part, ignore_errors=True)
            self._link(LATEST, path.name)
            if state.best is not None:
                self._link(BEST, _name(state.best.step))
            self._rotate(state)
        except (OSError, SafetensorError) as error:
            shutil.rmtree(part, ignore_errors=True)
            raise self._refused(path, error) from error
        self._check_room(1)
        return path

    def _folders(self) -> Iterator[Path]:
        """Those that are there, in the order of their steps."""
        return (path for path in sorted(self.folder.iterdir()) if _FOLDER.fullmatch(path.name))

    def _rotate(self, state: TrainingState) -> None:
        stay = {_name(state.best.step)} if state.best else set()
        for path in list(self._folders())[: -self.keep]:
            if path.name not in stay:
                _remove(path)

    def _link(self, name: str, to: str) -> None:
        link = self.folder / f".{name}.link"
        link.unlink(missing_ok=True)
        link.symlink_to(to)
        link.replace(self.folder / name)

    def _check_room(self, count: int) -> None:
        free, needed = shutil.disk_usage(self.folder).free, count * self.size
        if free < needed:
            raise TrainingError(
                f"the disk of {self.folder} has too little room: received {gigabytes(free)} free, expected "
                f"{gigabytes(needed)} for the next checkpoints, of {gigabytes(self.size)} each",
                hint="free some disk space, keep fewer of them (train.save.keep), or give another --work",
            )

    def _refused(self, path: Path, error: Exception) -> TrainingError:
        reason = "the disk is full" if is_disk_full(error) else str(error)
        return TrainingError(
            f"{path}: the checkpoint could not be written: {reason}; expected room for {gigabytes(self.size)}",
            hint="free some disk space and start again: the checkpoint before it is whole",
        )


def read_state(path: Path) -> TrainingState:
    """What state.json of a checkpoint says. Raises CheckpointError."""
    try:
        found = json.loads((path / STATE).read_bytes())
        best = found["best"]
        return TrainingState(**(found | {"best": None if best is None else BestStep(**best)}))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{path / STATE}: {error}, expected the state of a training",
            hint="remove this checkpoint to go on from the one before",
        ) from error


def check_same(found: Mapping[str, Any], wanted: Mapping[str, Any], path: Path) -> None:
    """Raise RecipeError with all that differs between the plan of a checkpoint and the one to go on with."""
    ours, theirs = dict(_flat(wanted)), dict(_flat(found))
    keys = sorted(key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key))
    if keys:
        listed = "; ".join(f"{key}: received {_said(ours, key)}, expected {_said(theirs, key)}" for key in keys)
        raise RecipeError(
            f"{path} is of another training, which this one cannot go on with: {listed}",
            hint="train as it was planned, or anew: give another --work, or remove that folder's checkpoints",
        )


def trainable_state(learner: nn.Module) -> dict[str, Tensor]:
    """What a checkpoint has of a learner: the parameters that are trained, and the buffers that are part of its state.
    What is frozen comes from where it came from."""
    kept = set(learner.state_dict())
    trained = {name: value for name, value in learner.named_parameters() if value.requires_grad}
    return trained | {name: value for name, value in learner.named_buffers() if name in kept}


def load_learner(learner: nn.Module, checkpoint: Path) -> None:
    """Give a learner, as its family makes it, the weights of a checkpoint. Raises CheckpointError with the tensors that
    are missing, or too many, or of another shape or type."""
    stored, own = read_tensors(checkpoint / LEARNER), trainable_state(learner)
    wrong = [f"{name} is missing" for name in sorted(own.keys() - stored.keys())]
    wrong += [f"{name} is no tensor of this learner" for name in sorted(stored.keys() - own.keys())]
    wrong += [
        f"{name} is {_form(stored[name])}, expected {_form(own[name])}"
        for name in sorted(own.keys() & stored.keys())
        if _form(own[name]) != _form(stored[name])
    ]
    if wrong:
        raise CheckpointError(f"{checkpoint / LEARNER}: {'; '.join(wrong)}", hint="train anew, in another work folder")
    for name, value in stored.items():
        own[name].data.copy_(value)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All of a file. Raises CheckpointError where it is not whole."""
    try:
        with safe_open(path, framework="pt") as opened:
            return {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (it is no mapping)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"{path}: {error}, expected tensors of a training",
            hint="remove this checkpoint to go on from the one before",
        ) from error


def _write(part: Path, state: TrainingState, learner: Mapping[str, Tensor], optimizers: Mapping[str, Tensor]) -> None:
    part.mkdir()
    save_file(dict(learner), part / LEARNER, {"format": "pt"})
    save_file(dict(optimizers), part / OPTIMIZERS, {"format": "pt"})
    (part / STATE).write_text(json.dumps(asdict(state), indent=1) + "\n", encoding="utf-8")
    sync(*part.iterdir(), part)


def _remove(path: Path) -> None:
    """A folder under its own name is whole at any moment, also while it goes."""
    if not path.is_dir() or path.is_symlink():
        path.unlink()
        return
    if _FOLDER.fullmatch(path.name):
        path = path.rename(path.with_name(f".{path.name}.old"))
    with suppress(FileNotFoundError):
        shutil.rmtree(path)


def _name(step: int) -> str:
    return f"step-{step:010d}"


def _flat(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """The values of a tree of JSON, by the path to each."""
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _flat(inner, f"{key}.{name}" if key else str(name))
    else:
        yield key, list(value) if isinstance(value, tuple) else value


def _said(values: Mapping[str, Any], key: str) -> str:
    return repr(values[key]) if key in values else "nothing"


def _form(value: Tensor) -> str:
    return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
