"""Limits of a build and of the cache, and the environment variables that set them."""

import os
from dataclasses import dataclass, field

from speccompile.machine import system
from speccompile.machine.environment import read_number_variable

SECONDS = "SPECCOMPILE_BUILDER_SECONDS"
MEMORY = "SPECCOMPILE_BUILDER_MEMORY_GB"

_SHARE = 0.9
"""Share of the available memory: the process that started the builder needs some too."""


@dataclass(frozen=True)
class Limits:
    """Limits of one build. seconds: wall time. memory: bytes that the builder may hold besides the weight files it
    maps.

    By default an hour and nine tenths of the memory of the machine or of its control group, or the environment's
    values; UsageError if one is no number above 0.
    """

    seconds: float = field(default_factory=lambda: read_number_variable(SECONDS, 3600))
    memory: float = field(default_factory=lambda: read_number_variable(MEMORY, _granted()[1] * _SHARE / 1e9) * 1e9)

    @property
    def memory_source(self) -> str:
        """Return a description of the source of the memory limit."""
        return f"${MEMORY}" if os.environ.get(MEMORY) else f"nine tenths of {_granted()[0]}"


def _granted() -> tuple[str, int]:
    """Return the smallest grant of memory to this process: its description and its bytes. Swap does not count."""
    _, *others = system.memory_limits()
    granted = {limit.name: limit.size for limit in others if limit.kind == system.MEMORY}
    granted["this machine's memory"] = system.physical_memory()
    name = min(granted, key=lambda each: granted[each])
    return name, granted[name]
