"""JSON files of a checkpoint: their names, and how they are read."""

from speccompile.formats.json_files import (
    COPY_AGAIN,
    RepeatedKeyError,
    is_present,
    read_json_object,
    refuse_duplicate_keys,
    wrong,
)

__all__ = [
    "CONFIG", "COPY_AGAIN", "RepeatedKeyError", "is_present", "read_json_object", "refuse_duplicate_keys", "wrong",
]  # fmt: skip

CONFIG = "config.json"
