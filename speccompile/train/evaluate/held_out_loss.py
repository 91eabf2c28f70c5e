"""Loss of held-out samples, by the objective that is trained: where it rises and the training loss falls, the drafter
overfits."""

from speccompile.drafters.trainable import TeacherBatch, TrainableDrafter
from speccompile.train.objective import Objective


class HeldOutLoss:
    """Mean loss of a drafter over batches of held-out samples; `add` them in its inference mode, without gradients."""

    def __init__(self, objective: Objective, student: TrainableDrafter, seed: int) -> None:
        """seed: selects the anchors, unless all positions are; they are the same in every evaluation."""
        self._objective, self._student, self._seed = objective, student, seed
        self._total = self._weight = 0.0

    def add(self, seen: TeacherBatch) -> None:
        """Add a batch, in the form in which `depths` hands it to `watch`."""
        found = self._objective(self._student, seen, self._seed, step=0)
        self._total += float(found.total)
        self._weight += float(found.weight)

    @property
    def value(self) -> float | None:
        """Return the weighted mean, in the units of the loss (see `losses`); None without a draft that counts."""
        return self._total / self._weight if self._weight else None
