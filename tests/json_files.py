"""JSON files of tests, edited in place."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def edited_json(path: Path) -> Iterator[Any]:
    """Yield the content of a JSON file, and write it back at the end."""
    content = json.loads(path.read_text())
    yield content
    path.write_text(json.dumps(content))


def merge_json(path: Path, fields: Mapping[str, Any]) -> None:
    """Add fields to the object in a file, or replace them."""
    with edited_json(path) as content:
        content.update(fields)


def edit_config(folder: Path, change: Callable[[Any], object]) -> None:
    """Change config.json: `change` is given the object that it holds."""
    with edited_json(folder / "config.json") as config:
        change(config)
