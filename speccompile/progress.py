"""Progress, told through the logger "speccompile". Library code never prints: the command line shows the logger."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

LOGGER = logging.getLogger("speccompile")


@contextmanager
def step(title: str) -> Iterator[None]:
    """Log that a step of the work begins, and its seconds when it took over one. A step that fails says no more."""
    LOGGER.info("%s ...", title)
    start = time.perf_counter()
    yield
    seconds = time.perf_counter() - start
    if seconds > 1:
        LOGGER.info("%s: %.1f s", title, seconds)
