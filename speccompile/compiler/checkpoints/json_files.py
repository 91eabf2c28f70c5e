"""JSON files of a checkpoint: their names, and how they are read."""

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
