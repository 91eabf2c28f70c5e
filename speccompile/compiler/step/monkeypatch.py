"""Another thing under a name of somebody else's, for a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def patched_attribute(holder: Any, name: str, value: object) -> Iterator[None]:
    """Inside, a module of Python's or of torch's, or a class, has another thing of this name; what it inherits comes
    back by itself."""
    before = vars(holder).get(name)
    setattr(holder, name, value)
    try:
        yield
    finally:
        delattr(holder, name) if before is None else setattr(holder, name, before)
