"""Default precision of 4-bit checkpoints: the one that keeps their quantized values."""

from collections.abc import Iterable
from typing import NamedTuple

from speccompile.plan.plan import CheckpointFacts

WORD = "int4"
BLOCK_SIZES = (128, 64, 32)
"""Block sizes of int4, the largest first: fewer scales are faster."""


class PrequantizedPrecision(NamedTuple):
    """Precisions of target and drafter, None for the usual default, and the number of weights that share a scale."""

    target: str | None = None
    drafter: str | None = None
    block_size: int | None = None


def prequantized_precision(target: CheckpointFacts, drafters: Iterable[CheckpointFacts]) -> PrequantizedPrecision:
    """Return the precisions that keep the models' quantized values. Draft models share one precision, so all of them
    must be in 4 bits. The block size divides the group size of every such model."""
    own, others = _blocks(target), [_blocks(each) for each in drafters]
    alike = bool(others) and None not in others
    sizes = [each for each in (own, *(others if alike else ())) if each]
    return PrequantizedPrecision(WORD if own else None, WORD if alike else None, min(sizes, default=None))


def _blocks(facts: CheckpointFacts) -> int | None:
    """Return the largest block size that divides a checkpoint's group size, or None."""
    if facts.groups_of_4_bits is None:
        return None
    size = facts.groups_of_4_bits
    return next((block for block in BLOCK_SIZES if size % block == 0 or size < 0), None)
