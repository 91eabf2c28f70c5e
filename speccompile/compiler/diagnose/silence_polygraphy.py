"""polygraphy without its talk: it logs to stdout, which is data here."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet() -> Iterator[None]:
    """Silence polygraphy's logger. What it cannot go on from it still raises."""
    from polygraphy.logger import G_LOGGER

    colors, G_LOGGER.colors = G_LOGGER.colors, False  # looking for colors, it prints that it has none
    try:
        with G_LOGGER.verbosity(G_LOGGER.CRITICAL):
            yield
    finally:
        G_LOGGER.colors = colors
