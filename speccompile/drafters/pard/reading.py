"""Read the mask token of a PARD drafter, the additional key in its language model's config."""

from pathlib import Path

from speccompile.compiler.checkpoints.json_files import CONFIG, read_json_object
from speccompile.errors import CheckpointError

KEY = "pard_token"


def read_mask(folder: Path, vocabulary_size: int) -> int:
    """Return the mask token of the language model in a folder. Raise CheckpointError if it has no valid one."""
    path = folder / CONFIG
    token = (read_json_object(path) or {}).get(KEY)
    if type(token) is int and 0 <= token < vocabulary_size:
        return token
    raise CheckpointError(
        f"{path}: {KEY}: received {'nothing' if token is None else repr(token)}, expected a token from 0 to "
        f"{vocabulary_size - 1}, which stands for those that are not there yet",
        hint="check the config against the drafter as it was published; a language model without mask tokens is "
        "drafter.kind model",
    )
