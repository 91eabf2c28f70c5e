"""Training checkpoints in atomically written folders. A training resumes from the last one, bit for bit.

    <folder>/step-0000001200/learner.safetensors      trained weights, float32, and buffers
                             optimizers.safetensors   optimizer state, by "optimizer/key/parameter"
                             state.json               step, seconds, divergence guard, best step, plan
    <folder>/latest, best                             links to the last checkpoint, and to the best one

A folder is written under a hidden name, synced to the disk and renamed: a process that is killed at any moment leaves
the previous one. Random numbers are functions of seed, step and part, so no random state is stored.
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

# The student's file keeps the name that earlier trainings, which may be resumed, gave it.
STUDENT, OPTIMIZERS, STATE = "learner.safetensors", "optimizers.safetensors", "state.json"
LATEST, BEST = "latest", "best"

_FOLDER = re.compile(r"step-(\d{10})")
_HIDDEN = re.compile(r"\.step-\d{10}\.(part|old)|\.(latest|best)\.link")


@dataclass(frozen=True)
class BestStep:
    """Step of the best checkpoint so far, and its score; a higher score is better."""

    step: int
    score: float


@dataclass(frozen=True)
class TrainingState:
    """State of a training. step: number of steps done. elapsed: their seconds. watch: state of the `DivergenceGuard`.
    best: best checkpoint so far. score: score of this one, None if it was not evaluated. plan: key of the training."""

    step: int = 0
    elapsed: float = 0.0
    watch: Mapping[str, Any] = field(default_factory=dict)
    best: BestStep | None = None
    score: float | None = None
    plan: Mapping[str, Any] = field(default_factory=dict)


class Checkpoints:
    """Checkpoints of one training. The last `keep` and the best one stay. One process uses the folder at a time."""

    def __init__(self, folder: Path, keep: int, plan: Mapping[str, Any], size: int) -> None:
        """plan: key of the training, as JSON values. size: approximate bytes of a checkpoint."""
        self.folder, self.keep, self.plan, self.size = folder, keep, plan, size
        self._lock: int | None = None

    def open(self) -> Path | None:
        """Lock the folder, remove leftovers of a killed process, and return the last checkpoint or None.

        Raise TrainingError if another process trains here, or if the disk cannot hold the checkpoints to keep;
        RecipeError for a checkpoint of another plan; CheckpointError for one that cannot be read.
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
        """Unlock the folder."""
        if self._lock is not None:
            os.close(self._lock)
        self._lock = None

    def path(self, step: int) -> Path:
        """Return the path of the checkpoint after `step` steps."""
        return self.folder / _name(step)

    def save(self, state: TrainingState, student: Mapping[str, Tensor], optimizers: Mapping[str, Tensor]) -> Path:
        """Write a checkpoint and remove outdated ones. Raise TrainingError if it cannot be written, or, after it is
        written, if the disk has no room for the next one: then no work is lost."""
        path = self.path(state.step)
        part = self.folder / f".{path.name}.part"
        try:
            _write(part, state, student, optimizers)
            replace_folder(part, path)  # it may exist: a step can be evaluated after it was saved
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
        """Return the existing checkpoints in the order of their steps."""
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
                f"not enough disk space in {self.folder}: received {gigabytes(free)} free, expected "
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
    """Read state.json of a checkpoint. Raise CheckpointError if it is invalid."""
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
    """Raise RecipeError with all differences between a checkpoint's plan and the current one."""
    ours, theirs = dict(_flat(wanted)), dict(_flat(found))
    keys = sorted(key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key))
    if keys:
        listed = "; ".join(f"{key}: received {_said(ours, key)}, expected {_said(theirs, key)}" for key in keys)
        raise RecipeError(
            f"{path} is of another training, which this one cannot go on with: {listed}",
            hint="train as it was planned, or anew: give another --work, or remove that folder's checkpoints",
        )


def trainable_state(student: nn.Module) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint: the trained parameters and the persistent buffers of the drafter.

    Frozen parameters are loaded from their original files."""
    kept = set(student.state_dict())
    trained = {name: value for name, value in student.named_parameters() if value.requires_grad}
    return trained | {name: value for name, value in student.named_buffers() if name in kept}


def load_student(student: nn.Module, checkpoint: Path) -> None:
    """Load the weights of a checkpoint into a drafter. Raise CheckpointError with all tensors that are missing,
    unexpected, or of another shape or dtype."""
    stored, own = read_tensors(checkpoint / STUDENT), trainable_state(student)
    wrong = [f"{name} is missing" for name in sorted(own.keys() - stored.keys())]
    wrong += [f"{name} is no tensor of this student" for name in sorted(stored.keys() - own.keys())]
    wrong += [
        f"{name} is {_form(stored[name])}, expected {_form(own[name])}"
        for name in sorted(own.keys() & stored.keys())
        if _form(own[name]) != _form(stored[name])
    ]
    if wrong:
        raise CheckpointError(f"{checkpoint / STUDENT}: {'; '.join(wrong)}", hint="train anew, in another work folder")
    for name, value in stored.items():
        own[name].data.copy_(value)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read all tensors of a file. Raise CheckpointError if it is damaged."""
    try:
        with safe_open(path, framework="pt") as opened:
            return {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (it is no mapping)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"{path}: {error}, expected tensors of a training",
            hint="remove this checkpoint to go on from the one before",
        ) from error


def _write(part: Path, state: TrainingState, student: Mapping[str, Tensor], optimizers: Mapping[str, Tensor]) -> None:
    part.mkdir()
    save_file(dict(student), part / STUDENT, {"format": "pt"})
    save_file(dict(optimizers), part / OPTIMIZERS, {"format": "pt"})
    (part / STATE).write_text(json.dumps(asdict(state), indent=1) + "\n", encoding="utf-8")
    sync(*part.iterdir(), part)


def _remove(path: Path) -> None:
    """Remove a file or folder. A checkpoint is renamed first, so that its name never shows an incomplete folder."""
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
    """Yield (dotted path, value) of every leaf of nested JSON values."""
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _flat(inner, f"{key}.{name}" if key else str(name))
    else:
        yield key, list(value) if isinstance(value, tuple) else value


def _said(values: Mapping[str, Any], key: str) -> str:
    return repr(values[key]) if key in values else "nothing"


def _form(value: Tensor) -> str:
    return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
