"""Metrics of a training: JSON lines, log lines, an HTML page, and TensorBoard on request.

curves.jsonl has one object per line. Lines are only appended; when a training resumes from a checkpoint, lines of later
steps are removed first.

    {"kind": "steps", "step": 120, "steps": 10, "elapsed": 61.2, "loss": 2.31, "learning_rate": 0.0009,
     "gradient_norm": 0.8, "shown": {"accepted/1": 0.61}}
    {"kind": "evaluation", "step": 120, "elapsed": 61.2, "score": 2.4, "is_best": true, "figures": {..}}

step: number of steps done. elapsed: their seconds. A "steps" line covers the last `steps` steps: loss, gradient norm
(before clipping) and `shown` are means, by weight or count; learning_rate is the highest of the optimizers' at the last
step. score: selects the best checkpoint, in tokens per round. figures: other results of the evaluation.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from speccompile.bundle.folders import write_atomically
from speccompile.extras import naming_extra
from speccompile.progress import INTERVAL, LOGGER, PROGRESS, Event, format_left, log_event, seconds_left
from speccompile.train.curves_page import make_page

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

CURVES, PAGE, TENSORBOARD = "curves.jsonl", "curves.html", "tensorboard"

TRAINING = "training"
"""Title of the progress step that covers all optimizer steps."""

LINE_SECONDS = 0.9 * INTERVAL
"""Minimum seconds between two log lines, shorter than the interval after which a step logs that it still runs."""

POINTS = 200
"""Approximate number of "steps" lines in a training: more points would overlap in a plot."""


@dataclass
class MetricsAccumulator:
    """Sums of metrics over the steps since the last line."""

    steps: int = 0
    total: float = 0.0
    weight: float = 0.0
    norms: float = 0.0
    shown: dict[str, tuple[Tensor | float, Tensor | float]] = field(default_factory=dict)

    def add(self, total: float, weight: float, norm: float) -> None:
        """Add a step: sums over all processes."""
        self.steps, self.total, self.weight = self.steps + 1, self.total + total, self.weight + weight
        self.norms += norm

    def show(self, shown: Mapping[str, tuple[Tensor | float, Tensor | float]]) -> None:
        """Add the (sum, count) pairs of a part in this process."""
        for name, (amount, count) in shown.items():
            before = self.shown.get(name, (0.0, 0.0))
            self.shown[name] = (before[0] + amount, before[1] + count)

    def counts(self) -> dict[str, tuple[float, float]]:
        """Return the (sum, count) pairs of this process as numbers."""
        return {name: (float(amount), float(count)) for name, (amount, count) in self.shown.items()}


class MetricsLog:
    """Log of one training's metrics in `folder`, which the first process writes."""

    def __init__(
        self, folder: Path, title: str, *, tensorboard: bool = False, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """clock: monotonic seconds. Raise MissingPackageError if `tensorboard` is requested and not installed."""
        self.file, self.page, self.title = folder / CURVES, folder / PAGE, title
        self.clock, self.told, self.began = clock, clock(), (clock(), 0.0)
        self.writer = _writer(folder / TENSORBOARD) if tensorboard else None

    def go_on(self, step: int, used: float) -> None:
        """Resume after a step and drop lines of later steps. used: used share of the budget, from 0 to 1."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        kept = [line for line in read_curves(self.file) if line["step"] <= step]
        write_atomically(self.file, b"".join(_line(each) for each in kept))
        self.began = (self.clock(), used)

    def steps(
        self, interval: MetricsAccumulator, counts: list[dict[str, tuple[float, float]]], *,
        step: int, elapsed: float, rate: float,
    ) -> None:  # fmt: skip
        """Write a "steps" line. counts: the (sum, count) pairs of every process."""
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
        """Write an "evaluation" line and rewrite the page."""
        self._write({"kind": "evaluation", "step": step, "elapsed": elapsed, "score": score, "is_best": is_best,
                     "figures": dict(figures)})  # fmt: skip
        self._draw(step, {"score": score} | {f"evaluation/{name}": value for name, value in figures.items()})
        LOGGER.info("step %d: %.3f tokens a round%s", step, score, ", the best so far" if is_best else "")
        self.write_page()

    def log_line(self, step: int, used: float, budget: str, loss: float) -> None:
        """Log a progress line at intervals. used: used share of the budget; budget: the budget as text."""
        now = self.clock()
        if now - self.told < LINE_SECONDS:
            return
        self.told = now
        seconds = now - self.began[0]
        left = seconds_left(seconds, used - self.began[1], 1 - self.began[1])
        rest = f", {format_left(left)}" if left is not None else ""
        event = Event(PROGRESS, TRAINING, seconds, 100 * used, 100, "%", left)
        log_event(event, "training: step %d, %.0f %% of %s, loss %.3f%s", step, 100 * used, budget, loss, rest)

    def write_page(self) -> None:
        """Write the HTML page of all lines so far."""
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
    """Return the complete lines of a file: a killed process may have left a partial last line."""
    if not file.exists():
        return []
    lines = file.read_bytes().split(b"\n")[:-1]
    return [json.loads(line) for line in lines]


def _line(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, allow_nan=False).encode() + b"\n"


def _numbers(value: Any) -> Iterator[tuple[str, float]]:
    """Yield (name suffix, number) of a figure: a number, or the numbers of a list by position."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield "", float(value)
    elif isinstance(value, list | tuple):
        for place, each in enumerate(value, 1):
            if isinstance(each, int | float):
                yield f"/{place}", float(each)


def _writer(folder: Path) -> "SummaryWriter":
    with naming_extra("--tensorboard"):
        from torch.utils.tensorboard import SummaryWriter
    return SummaryWriter(str(folder))
