"""Check a checkpoint's tensors against its config.json by their names, without the model.

Only what every language model has is compared: rows of the embedding with tokens, and the number of layers. Loading the
weights compares the rest.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from speccompile.compiler.checkpoints.weights import StoredTensor
from speccompile.errors import CheckpointError

_TABLE = re.compile(r"(?:.*\.)?(?:embed_tokens|wte|embed_in|word_embeddings|lm_head)\.weight")
"""Names of embedding and head in architectures. The head may lack the rows of tokens that are never generated."""

_LAYER = re.compile(r"(?:.*?\.)?(?:layers|h|blocks)\.(\d+)\.")

_HINT = "check that config.json belongs to these weights, and that all of them are there"


def check_shapes(folder: Path, tensors: Mapping[str, StoredTensor], vocabulary_size: int, layers: int | None) -> None:
    """Raise CheckpointError, naming tensor and file, if the config disagrees. layers: None if the config has no number,
    or one that does not count the decoder's layers."""
    tables = {name: each for name, each in tensors.items() if _TABLE.fullmatch(name) and len(each.shape) == 2}
    # A multimodal checkpoint has embeddings of several vocabularies.
    if tables and all(table.shape[0] != vocabulary_size for table in tables.values()):
        name, table = next(iter(tables.items()))
        raise CheckpointError(
            f"{folder / table.file}: received tensor '{name}' of shape {list(table.shape)}, expected "
            f"{vocabulary_size} rows, one for each token, as config.json says",
            hint=_HINT,
        )
    numbers = _layer_numbers(tensors)
    lacking = sorted(set(range(layers or 0)) - numbers) if numbers else []
    if lacking:
        raise CheckpointError(
            f"{folder}: received no tensor of layer {lacking[0]}, expected layers 0 to {(layers or 0) - 1}, as "
            "config.json says",
            hint=_HINT,
        )


def _layer_numbers(names: Iterable[str]) -> set[int]:
    return {int(match[1]) for name in names if (match := _LAYER.match(name))}
