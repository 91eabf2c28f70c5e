"""What a build and the cache may take, and where the user says so."""

import math
import os
from dataclasses import dataclass, field

from speccompile.engines.memory import physical_memory
from speccompile.errors import UsageError

SECONDS = "SPECCOMPILE_BUILDER_SECONDS"
MEMORY = "SPECCOMPILE_BUILDER_MEMORY_GB"


def read_number(variable: str, default: float, *, zero: bool = False) -> float:
    """The number in an environment variable. Raises UsageError unless it is above 0, or with `zero` at least 0."""
    text = os.environ.get(variable)
    if not text:
        return default
    try:
        number = float(text)
    except ValueError:
        number = -1
    if math.isfinite(number) and (number > 0 or (zero and number == 0)):
        return number
    raise UsageError(
        f"${variable}: received {text!r}, expected a number {'of at least' if zero else 'above'} 0",
        hint=f"set {variable} to a number, or unset it",
    )


@dataclass(frozen=True)
class Limits:
    """seconds: wall time of one build. memory: bytes that the builder may hold beside the weight files it maps.

    By default an hour and nine tenths of the machine's memory, or what the environment says; UsageError when that is no
    number above 0.
    """

    seconds: float = field(default_factory=lambda: read_number(SECONDS, 3600))
    memory: float = field(default_factory=lambda: read_number(MEMORY, physical_memory() * 0.9 / 1e9) * 1e9)
