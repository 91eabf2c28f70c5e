"""How a training goes: lines of JSON, lines on the terminal, a page, and TensorBoard where it is asked for.

curves.jsonl has an object a line. Lines are only added; where a training goes on from a checkpoint, those of steps that
are made again are taken away first.

    {"kind": "steps", "step": 120, "steps": 10, "elapsed": 61.2, "loss": 2.31, "learning_rate": 0.0009,
     "gradient_norm": 0.8, "shown": {"accepted/1": 0.61}}
    {"kind": "evaluation", "step": 120, "elapsed": 61.2, "score": 2.4, "is_best": true, "figures": {..}}

step: how many are done. elapsed: seconds that steps took. A line of steps is of the `steps` before `step` (loss, norm
and `shown` are their means, by weight or count; the norm is that before clipping, the rate AdamW's or Muon's, of the
last of them). score: what the best checkpoint is chosen by, in tokens a round; figures: what else the evaluation found.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from speccompile.bundle.folders import write_atomically
from speccompile.errors import EngineError
from speccompile.progress import INTERVAL, LOGGER, time_left
from speccompile.train.curves_page import make_page

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

CURVES, PAGE, TENSORBOARD = "curves.jsonl", "curves.html", "tensorboard"

POINTS = 200
"""Lines of steps in a whole training, about: as many as a plot can show apart."""


@dataclass
class MetricsAccumulator:
    """Sums over the steps since the last line."""

    steps: int = 0
    total: float = 0.0
    weight: float = 0.0
    norms: float = 0.0
    shown: dict[str, tuple[Tensor | float, Tensor | float]] = field(default_factory=dict)

    def add(self, total: float, weight: float, norm: float) -> None:
        """A step, of all processes."""
        self.steps, self.total, self.weight = self.steps + 1, self.total + total, self.weight + weight
        self.norms += norm

    def show(self, shown: Mapping[str, tuple[Tensor | float, Tensor | float]]) -> None:
        """Sums and counts of a part, of this process."""
        for name, (amount, count) in shown.items():
            before = self.shown.get(name, (0.0, 0.0))
            self.shown[name] = (before[0] + amount, before[1] + count)

    def counts(self) -> dict[str, tuple[float, float]]:
        """What was shown in this process, as numbers."""
        return {name: (float(amount), float(count)) for name, (amount, count) in self.shown.items()}


class MetricsLog:
    """The curves of one training, which the first process writes into `folder`."""

    def __init__(
        self, folder: Path, title: str, *, tensorboard: bool = False, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """Raises EngineError where TensorBoard is asked for and not installed. clock: seconds that only grow."""
        self.file, self.page, self.title = folder / CURVES, folder / PAGE, title
        self.clock, self.told, self.began = clock, clock(), (clock(), 0.0)
        self.writer = _writer(folder / TENSORBOARD) if tensorboard else None

    def go_on(self, step: int, used: float) -> None:
        """Begin behind a step, `used` of the budget (0 to 1) being gone: what was said of later ones is taken away."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        kept = [line for line in read_curves(self.file) if line["step"] <= step]
        write_atomically(self.file, b"".join(_line(each) for each in kept))
        self.began = (self.clock(), used)

    def steps(
        self, interval: MetricsAccumulator, counts: list[dict[str, tuple[float, float]]], *,
        step: int, elapsed: float, rate: float,
    ) -> None:  # fmt: skip
        """A line of steps. counts: what every process has shown."""
        shown: dict[str, float] = {}
        for name in dict.fromkeys(name for each in counts for name in each):
            amounts, numbers = zip(*(each[name] for each in counts if name in each), strict=True)
            if sum(numbers) > 0:
                shown[name] = sum(amounts) / sum(numbers)
        figures = {"loss": interval.total / interval.weight, "learning_rate": rate,
                   "gradient_norm": interval.norms / interval.steps}  # fmt: skip
        self._write(
            {"kind": "steps", "step": step, "steps": interval.steps, "elapsed": elapsed, **figures, "shown": shown}
        )
        self._draw(step, figures | {f"shown/{name}": value for name, value in shown.items()})

    def evaluation(self, score: float, figures: Mapping[str, Any], *, step: int, elapsed: float, is_best: bool) -> None:
        """A line of an evaluation, and the page anew."""
        self._write({"kind": "evaluation", "step": step, "elapsed": elapsed, "score": score, "is_best": is_best,
                     "figures": dict(figures)})  # fmt: skip
        self._draw(step, {"score": score} | {f"evaluation/{name}": value for name, value in figures.items()})
        LOGGER.info("step %d: %.3f tokens a round%s", step, score, ", the best so far" if is_best else "")
        self.write_page()

    def log_line(self, step: int, used: float, budget: str, loss: float) -> None:
        """A line on the terminal, now and then. used: share of the budget that is gone; budget: it, in words."""
        now = self.clock()
        if now - self.told < INTERVAL:
            return
        self.told = now
        left = time_left(now - self.began[0], used - self.began[1], 1 - self.began[1])
        LOGGER.info("training: step %d, %.0f %% of %s, loss %.3f%s", step, 100 * used, budget, loss, left)

    def write_page(self) -> None:
        """One page of all that was written."""
        write_atomically(self.page, make_page(self.title, read_curves(self.file)).encode())

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()

    def _write(self, line: Mapping[str, Any]) -> None:
        with self.file.open("ab") as file:
            file.write(_line(line))

    def _draw(self, step: int, figures: Mapping[str, Any]) -> None:
        if self.writer is None:
            return
        for name, value in figures.items():
            for place, each in _numbers(value):
                self.writer.add_scalar(name + place, each, step)


def read_curves(file: Path) -> list[dict[str, Any]]:
    """The lines that are there, whole ones: a process that was killed may have left a part of one."""
    if not file.exists():
        return []
    lines = file.read_bytes().split(b"\n")[:-1]
    return [json.loads(line) for line in lines]


def _line(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, allow_nan=False).encode() + b"\n"


def _numbers(value: Any) -> Iterator[tuple[str, float]]:
    """What can be drawn of a figure: a number, or those of a list by their places."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield "", float(value)
    elif isinstance(value, list | tuple):
        for place, each in enumerate(value, 1):
            if isinstance(each, int | float):
                yield f"/{place}", float(each)


def _writer(folder: Path) -> "SummaryWriter":
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise EngineError(
            "TensorBoard's files need the Python package tensorboard, which is not installed",
            hint="pip install tensorboard, or leave it out: curves.jsonl and curves.html have the same",
        ) from None
    return SummaryWriter(str(folder))
