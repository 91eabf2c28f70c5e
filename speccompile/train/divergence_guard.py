"""Guard against divergence: stop a training on non-finite numbers and on an exploding loss, before weights are lost."""

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from speccompile.errors import TrainingError

PATIENCE = 5
"""Number of consecutive steps whose loss must be too high. Most trainings recover from a single spike (Chowdhery et al.
2022, PaLM, section 5.1), and clipping bounds its effect."""

FACTOR = 3.0
"""A loss is too high above this multiple of the lowest loss so far; it must also exceed the first loss. Batches differ
by less: in 150 steps of the demo's language model and of its EAGLE-3 head, 8 samples each, no loss exceeded 1.22 times
the mean of its ten neighbours, and none of the second half 1.32 times the lowest."""

MIN_LOSS_LIMIT = 1.0
"""No loss below this number of nats is too high: near zero, losses of batches differ by large factors."""

SHOWN = 32
"""Maximum number of samples that a message names."""

Samples = Callable[[int, int, int], Sequence[int]]
"""Function (step, part, parts) -> numbers of the samples of that part."""


class DivergenceGuard:
    """Check of every step before its weights change.

    A loss is too high above `limit`, the maximum of three numbers: the loss of the first step; FACTOR times the lowest
    mean of PATIENCE consecutive losses, or the first loss if that is lower; MIN_LOSS_LIMIT. PATIENCE consecutive losses
    above it are an explosion. Bounded losses, such as total variation, cannot explode.
    """

    def __init__(self, samples: Samples | None, kept: str = "") -> None:
        """samples: names the samples of a part. kept: end of messages, such as the place of the last checkpoint."""
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
        """Return whether the last loss is within the limit. Only then are the weights worth saving."""
        return not self.last or self.last[-1] <= self.limit

    def see_loss(self, step: int, totals: Sequence[float], weights: Sequence[float]) -> float:
        """Return the loss of a step from the totals and weights of its parts. Raise TrainingError if it is not finite,
        if the weights add up to zero, or if it explodes."""
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
        """Raise TrainingError if the gradient's norm is not finite."""
        if not math.isfinite(norm):
            raise self._stopped(step, f"the norm of the gradient is {norm}", "a finite one", range(parts), parts)

    def state(self) -> dict[str, Any]:
        """Return the guard's state as JSON values."""
        return {"began": self.began, "lowest": self.lowest, "last": list(self.last)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore a state that `state` returned."""
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
