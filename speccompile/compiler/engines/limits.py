"""What a build and the cache may take, and where the user says so."""

import os
from dataclasses import dataclass, field

from speccompile.machine import system
from speccompile.machine.environment import read_number_variable

SECONDS = "SPECCOMPILE_BUILDER_SECONDS"
MEMORY = "SPECCOMPILE_BUILDER_MEMORY_GB"

_SHARE = 0.9
"""Of the memory that there is: whoever started the builder has some too."""


@dataclass(frozen=True)
class Limits:
    """seconds: wall time of one build. memory: bytes that the builder may hold beside the weight files it maps.

    By default an hour and nine tenths of what the machine has or a control group grants, or what the environment says;
    UsageError when that is no number above 0.
    """

    seconds: float = field(default_factory=lambda: read_number_variable(SECONDS, 3600))
    memory: float = field(default_factory=lambda: read_number_variable(MEMORY, _granted()[1] * _SHARE / 1e9) * 1e9)

    @property
    def memory_source(self) -> str:
        """Where the limit of memory comes from, in words."""
        return f"${MEMORY}" if os.environ.get(MEMORY) else f"nine tenths of {_granted()[0]}"


def _granted() -> tuple[str, int]:
    """What grants this process the least memory, in words, and its bytes. Swap is none to build in."""
    _, *others = system.memory_limits()
    granted = {limit.name: limit.size for limit in others if limit.kind == system.MEMORY}
    granted["this machine's memory"] = system.physical_memory()
    name = min(granted, key=lambda each: granted[each])
    return name, granted[name]
