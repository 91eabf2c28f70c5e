"""Silence polygraphy's messages: it logs to stdout, which holds data here."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet() -> Iterator[None]:
    """Silence polygraphy's logger inside a `with` block. It still raises its fatal errors."""
    from polygraphy.logger import G_LOGGER

    colors, G_LOGGER.colors = G_LOGGER.colors, False  # its search for colors prints that there are none
    try:
        with G_LOGGER.verbosity(G_LOGGER.CRITICAL):
            yield
    finally:
        G_LOGGER.colors = colors
