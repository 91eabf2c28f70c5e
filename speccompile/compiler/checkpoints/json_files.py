"""JSON files of a checkpoint: their names, and how they are read."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from speccompile.machine.formats.json_files import (
    COPY_AGAIN,
    RepeatedKeyError,
    is_present,
    read_json_object,
    refuse_duplicate_keys,
)

__all__ = [
    "CONFIG", "COPY_AGAIN", "RepeatedKeyError", "is_present", "read_json_object", "refuse_duplicate_keys",
]  # fmt: skip

CONFIG, GENERATION_CONFIG = "config.json", "generation_config.json"


def generation_rules(folder: Path, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what says how a checkpoint writes: its generation_config.json, or, without one, its config. transformers
    reads one of both alone."""
    return read_json_object(folder / GENERATION_CONFIG) or config


def config_count(config: Mapping[str, Any], *names: str) -> int | None:
    """Return the first positive whole number that a config has under one of these names; None if it has none."""
    return next((found for name in names if type(found := config.get(name)) is int and found > 0), None)
