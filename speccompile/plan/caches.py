"""Plan of stored keys and values."""

from dataclasses import asdict, dataclass
from typing import Any

from speccompile.contract import FLOAT_CACHE

MAX_DIVERGENCE = 0.01
"""Default of the largest loss by quantized caches that a build accepts, KL divergence in nats: on the demo int8 loses
0.00005, 4 bits 0.018, and 4-bit weights lose more."""


@dataclass(frozen=True)
class CachePlan:
    """Dtypes of stored keys and values, of `contract.CACHE_DTYPES`. drafter: of its own caches, or the target's dtype
    if it reads the target's. max_divergence: see MAX_DIVERGENCE."""

    target: str = FLOAT_CACHE
    drafter: str = FLOAT_CACHE
    max_divergence: float = MAX_DIVERGENCE

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
