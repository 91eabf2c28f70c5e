"""What a build and the cache may take, and where the user says so."""

from dataclasses import dataclass, field

from speccompile.engines.memory import physical_memory
from speccompile.environment import read_number

SECONDS = "SPECCOMPILE_BUILDER_SECONDS"
MEMORY = "SPECCOMPILE_BUILDER_MEMORY_GB"


@dataclass(frozen=True)
class Limits:
    """seconds: wall time of one build. memory: bytes that the builder may hold beside the weight files it maps.

    By default an hour and nine tenths of the machine's memory, or what the environment says; UsageError when that is no
    number above 0.
    """

    seconds: float = field(default_factory=lambda: read_number(SECONDS, 3600))
    memory: float = field(default_factory=lambda: read_number(MEMORY, physical_memory() * 0.9 / 1e9) * 1e9)
