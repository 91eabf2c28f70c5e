"""What stops a training before its weights are lost: numbers that are none, and a loss that explodes."""

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from speccompile.errors import TrainingError

PATIENCE = 5
"""Steps in a row whose loss must be too high. A single spike passes by itself in most trainings (Chowdhery et al. 2022,
PaLM, section 5.1), and clipping bounds what it does."""

FACTOR = 3.0
"""Times the lowest loss so far, above which a loss is too high; it must also be worse than before any training. Batches
differ by less: in 150 steps of the demo's language model and of its EAGLE-3 head, 8 texts each, no loss was more than
1.22 times the mean of the ten around it, and none of the second half more than 1.32 times the lowest."""

MIN_LOSS_LIMIT = 1.0
"""Nats below which no loss is too high: trainings that begin near zero have batches many times as hard as others."""

SHOWN = 32
"""Samples that a message names."""

Samples = Callable[[int, int, int], Sequence[int]]
"""(step, part, parts) -> the samples of that part."""


class DivergenceGuard:
    """Looks at every step before its weights change.

    A loss is too high above `limit`, the highest of: the first step's loss, before any training; FACTOR times the
    lowest mean of PATIENCE losses in a row, or the first loss where that is lower; and LEAST. PATIENCE such losses in a
    row are an explosion. Losses with a bound, as total variation has, cannot explode.
    """

    def __init__(self, samples: Samples | None, kept: str = "") -> None:
        """samples: names what a batch is of. kept: said in messages, such as where the last good checkpoint is."""
        self.samples, self.kept = samples, kept
        self.began: float | None = None
        self.lowest: float | None = None
        self.last: deque[float] = deque(maxlen=PATIENCE)

    @property
    def limit(self) -> float:
        assert self.began is not None, "a loss was seen"
        assert self.lowest is not None, "which was the lowest"
        return max(self.began, FACTOR * self.lowest, MIN_LOSS_LIMIT)

    @property
    def is_stable(self) -> bool:
        """Whether the last loss is not too high: only then are weights worth keeping."""
        return not self.last or self.last[-1] <= self.limit

    def see_loss(self, step: int, totals: Sequence[float], weights: Sequence[float]) -> float:
        """The loss of a step, from the totals and weights of its parts. Raises TrainingError where it is none, weighs
        nothing, or explodes."""
        parts = len(totals)
        bad = [at for at in range(parts) if not (math.isfinite(totals[at]) and math.isfinite(weights[at]))]
        if bad:
            raise self._stopped(step, f"the loss is {totals[bad[0]]}", "a finite one", bad, parts)
        if not sum(weights) > 0:
            problem = f"the batch's weights add up to {sum(weights):g}"
            raise self._stopped(step, problem, "some token that is learnt", range(parts), parts)
        loss = sum(totals) / sum(weights)
        self._remember(loss)
        if len(self.last) == PATIENCE and min(self.last) > self.limit:
            worst = max(range(parts), key=lambda at: totals[at] / weights[at] if weights[at] else -math.inf)
            problem = f"the loss explodes: it was {', '.join(f'{each:.4g}' for each in self.last)} in the last steps"
            expected = f"at most {self.limit:.4g} (it began at {self.began:.4g})"
            raise self._stopped(step, problem, expected, [worst], parts)
        return loss

    def see_gradient(self, step: int, norm: float, parts: int) -> None:
        """Raises TrainingError where the gradient's norm is no number."""
        if not math.isfinite(norm):
            raise self._stopped(step, f"the norm of the gradient is {norm}", "a finite one", range(parts), parts)

    def state(self) -> dict[str, Any]:
        """What it saw, as JSON has it."""
        return {"began": self.began, "lowest": self.lowest, "last": list(self.last)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take back what `state` gave."""
        self.began, self.lowest = state["began"], state["lowest"]
        self.last = deque(state["last"], PATIENCE)

    def _remember(self, loss: float) -> None:
        if self.began is None or self.lowest is None:
            self.began = self.lowest = loss
        self.last.append(loss)
        if len(self.last) == PATIENCE:
            self.lowest = min(self.lowest, sum(self.last) / PATIENCE)

    def _stopped(self, step: int, problem: str, expected: str, bad: Sequence[int], parts: int) -> TrainingError:
        return TrainingError(
            f"step {step}: {problem}, expected {expected}{self._named(step, bad, parts)}; the weights are those before "
            f"this step{self.kept}",
            hint="lower train.schedule.learning_rate or train.schedule.clip, or take these samples out of the data",
        )

    def _named(self, step: int, bad: Sequence[int], parts: int) -> str:
        if self.samples is None:
            return f"; in parts {', '.join(str(at) for at in bad)} of {parts}"
        found = [sample for at in bad for sample in self.samples(step, at, parts)]
        more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        return f"; its samples: {', '.join(str(each) for each in found[:SHOWN])}{more}"
