"""Monkeypatch an attribute inside a `with` block."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def patched_attribute(holder: Any, name: str, value: object) -> Iterator[None]:
    """Replace an attribute of a Python or torch module, or of a class, inside a `with` block; an inherited attribute
    comes back by deleting the replacement."""
    before = vars(holder).get(name)
    setattr(holder, name, value)
    try:
        yield
    finally:
        delattr(holder, name) if before is None else setattr(holder, name, before)
