"""Checkpoints in 4 bits: the precision that holds their numbers as they are, where the recipe names none."""

from collections.abc import Iterable
from typing import NamedTuple

from speccompile.plan.plan import CheckpointFacts

WORD = "int4"
BLOCK_SIZES = (128, 64, 32)
"""Of int4, the largest first: fewer scales are faster."""


class PrequantizedPrecision(NamedTuple):
    """Precisions of target and drafter, None where it is the usual one, and how many weights share a scale."""

    target: str | None = None
    drafter: str | None = None
    block_size: int | None = None


def prequantized_precision(target: CheckpointFacts, drafters: Iterable[CheckpointFacts]) -> PrequantizedPrecision:
    """For models, of which all that draft have one precision. Blocks divide the groups of every one that is held."""
    own, others = _blocks(target), [_blocks(each) for each in drafters]
    alike = bool(others) and None not in others
    sizes = [each for each in (own, *(others if alike else ())) if each]
    return PrequantizedPrecision(WORD if own else None, WORD if alike else None, min(sizes, default=None))


def _blocks(facts: CheckpointFacts) -> int | None:
    """The most weights to a scale in which groups are what they were."""
    if facts.groups_of_4_bits is None:
        return None
    size = facts.groups_of_4_bits
    return next((block for block in BLOCK_SIZES if size % block == 0 or size < 0), None)
