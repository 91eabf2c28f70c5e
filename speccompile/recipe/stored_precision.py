"""Default precision: the one in which a checkpoint is stored, so that its weights keep their values."""

from collections.abc import Sequence
from typing import NamedTuple

from speccompile.plan.head import HeadPlan
from speccompile.plan.plan import CheckpointFacts
from speccompile.plan.precisions import IN_BLOCKS

BLOCK_SIZES = (128, 64, 32)
"""Block sizes of int4, the largest first: fewer scales are faster."""


class StoredPrecision(NamedTuple):
    """Precisions of target and drafter, None for the usual default, and the number of weights that share a scale."""

    target: str | None = None
    drafter: str | None = None
    block_size: int | None = None
    coded: tuple[str, ...] = ("target", "drafter")
    """Components whose models are all GGUF files: their precision may be `stored`."""

    @property
    def floats(self) -> "StoredPrecision":
        """Return the precisions without 4-bit ones, which engines on GPUs cannot keep."""
        target, drafter = (None if each == IN_BLOCKS else each for each in (self.target, self.drafter))
        return StoredPrecision(target, drafter, coded=self.coded)


def stored_precision(
    target: CheckpointFacts, drafters: Sequence[CheckpointFacts], head: HeadPlan | None = None
) -> StoredPrecision:
    """Return the precisions that keep the models' stored values: the dtype of their floats, int4 for 4-bit integers.
    Draft models share one precision, so all of them must be stored alike. The block size divides the group size of
    every 4-bit model. head: the one that drafts."""
    others = [(_word(each), _blocks(each)) for each in drafters]
    alike = {word for word, _ in others}
    drafter = alike.pop() if len(alike) == 1 else None
    sizes = [_blocks(target), *(size for _, size in others if drafter == IN_BLOCKS)]
    models: dict[str, Sequence[CheckpointFacts | HeadPlan]]
    models = {"target": [target], "drafter": drafters if head is None else [head]}
    coded = tuple(part for part, own in models.items() if own and all(each.has_codes for each in own))
    return StoredPrecision(_word(target), drafter, min(filter(None, sizes), default=None), coded)


def _word(facts: CheckpointFacts) -> str | None:
    return IN_BLOCKS if _blocks(facts) else facts.dtype


def _blocks(facts: CheckpointFacts) -> int | None:
    """Return the largest block size that divides a checkpoint's group size, or None."""
    if facts.groups_of_4_bits is None:
        return None
    size = facts.groups_of_4_bits
    return next((block for block in BLOCK_SIZES if size % block == 0 or size < 0), None)
