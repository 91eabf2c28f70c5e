"""Settings in environment variables."""

import math
import os

from speccompile.errors import UsageError


def read_number_variable(variable: str, default: float, *, allow_zero: bool = False) -> float:
    """Return the number in an environment variable. Raise UsageError unless it is above 0, or 0 with `allow_zero`."""
    text = os.environ.get(variable)
    if not text:
        return default
    try:
        number = float(text)
    except ValueError:
        number = -1
    if math.isfinite(number) and (number > 0 or (allow_zero and number == 0)):
        return number
    raise UsageError(
        f"${variable}: received {text!r}, expected a number {'of at least' if allow_zero else 'above'} 0",
        hint=f"set {variable} to a number, or unset it",
    )
