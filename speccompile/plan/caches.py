"""Plan of stored keys and values."""

from dataclasses import asdict, dataclass
from typing import Any

from speccompile.contract import FLOAT_CACHE

MAX_DIVERGENCE = 0.01
"""Default of the maximum KL divergence, in nats, that a build accepts from quantized caches or from the precision of an
encoder of pictures. On the demo, int8 caches have 0.00005, 4-bit caches 0.018, and 4-bit weights more."""

MAX_ACCEPTANCE_LOSS = 0.05
"""Default of the maximum share of the mean acceptance length that a build may lose by quantized caches."""

FULL, RING = SLIDING = ("full", "ring")
"""Caches of sliding-window layers: a row for every token, or a ring of rows for the latest tokens."""

NODES = 16
"""Granularity of the buffers' growth, in nodes of a window."""


@dataclass(frozen=True)
class CachePlan:
    """Dtypes of stored keys and values, of `contract.CACHE_DTYPES`. drafter: of its own caches; the target's dtype if
    it reads the target's caches. max_divergence, max_acceptance_loss: see MAX_DIVERGENCE, MAX_ACCEPTANCE_LOSS.

    sliding: caches of the target's sliding-window layers, one of SLIDING. ring_rows: rows of a ring, None for
    `ring_size`.
    """

    target: str = FLOAT_CACHE
    drafter: str = FLOAT_CACHE
    max_divergence: float = MAX_DIVERGENCE
    max_acceptance_loss: float = MAX_ACCEPTANCE_LOSS
    sliding: str = FULL
    ring_rows: int | None = None

    def to_json(self) -> dict[str, Any]:
        rings = {"sliding": self.sliding, "ring_rows": self.ring_rows}
        kept = {name: value for name, value in asdict(self).items() if name not in rings}
        if self.max_acceptance_loss == MAX_ACCEPTANCE_LOSS:
            del kept["max_acceptance_loss"]
        # present only where they differ from the default: other bundles stay the same
        return kept | (rings if self.sliding == RING else {})


def spare_rows(prefill_chunk: int, drafts: int) -> int:
    """Return the rows of a cache beyond its longest sequence, or of a ring beyond its attention window. They hold the
    widest verification window and the drafter's lookahead. The number of drafts is rounded up, so that graphs stay the
    same when a few are added."""
    nodes = -(-(drafts + 1) // NODES) * NODES
    return max(prefill_chunk, nodes) + nodes


def ring_size(window: int, spare: int) -> int:
    """Return the rows of a ring for an attention window. spare: of `spare_rows`.

    A round reads the window before its first token, and writes as many rows as it is wide, of which the rejected ones
    replace older rows: the next round must still find its window.
    """
    return window + spare
