"""Check a checkpoint's tensors against its config.json by their names, without the model.

Only what every language model has is compared: rows of the embedding with tokens, and the number of layers. Loading the
weights compares the rest.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from speccompile.compiler.checkpoints.json_files import CONFIG
from speccompile.compiler.checkpoints.weights import StoredTensor
from speccompile.errors import CheckpointError

_TABLE = re.compile(r"(?:.*\.)?(?:embed_tokens|wte|embed_in|word_embeddings|backbone\.embeddings?|lm_head)\.weight")
"""Names of embedding and head in architectures. The head may lack the rows of tokens that are never generated."""

_LAYER = re.compile(r"((?:.*?\.)?(?:layers|h|blocks)\.)(\d+)\.")

_MTP = re.compile(r"\.(?:eh_proj|enorm|hnorm|shared_head|mtp)\b")
"""Names in MTP layers, which some checkpoints store behind the decoder's."""

_BASE = re.compile(r"(?<!LMHead)(?<!PreTrained)Model$")
"""End of the names of transformers' classes of layers without a head."""

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
            f"{[vocabulary_size, table.shape[1]]}, a row for each token, as vocab_size: {vocabulary_size} in "
            "config.json says",
            hint=f"check that config.json belongs to these weights; these weights fit vocab_size: {table.shape[0]}",
        )
    if layers is not None:
        _check_layers(folder, tensors, layers)


def check_head(
    folder: Path, config: Mapping[str, Any], tensors: Mapping[str, StoredTensor], vocabulary_size: int
) -> None:
    """Raise CheckpointError for a decoder that was saved without a head, such as a LlamaModel, if its embedding is not
    the head by the config: loading the weights would find out after PyTorch's import."""
    match config.get("architectures"):
        case [str(name), *_] if _BASE.search(name) and config.get("tie_word_embeddings") is False:
            tables = [each for each in tensors.values() if len(each.shape) == 2 and each.shape[0] == vocabulary_size]
            if len(tables) == 1:
                raise CheckpointError(
                    f"{folder / CONFIG}: received architectures: [{name}] and tie_word_embeddings: false, expected a "
                    "model with a head that predicts the next token: no tensor is one",
                    hint=f"save the model with its head, as transformers' {_BASE.sub('ForCausalLM', name)} does; if "
                    "the head is the embedding, set tie_word_embeddings: true in config.json",
                )


def _check_layers(folder: Path, tensors: Mapping[str, StoredTensor], layers: int) -> None:
    numbers = _layer_numbers(tensors)
    found = set[int]().union(*numbers.values())
    lacking = sorted(set(range(layers)) - found) if found else []
    if lacking:
        raise CheckpointError(
            f"{folder}: received no tensor of layer {lacking[0]}, expected layers 0 to {layers - 1}, as "
            f"num_hidden_layers: {layers} in config.json says",
            hint=_HINT,
        )
    extra = {name: int(match[2]) for name in tensors if (match := _LAYER.match(name)) and int(match[2]) >= layers}
    if len(numbers) == 1 and extra and not any(map(_MTP.search, extra)):
        raise CheckpointError(
            f"{folder}: received tensor '{next(iter(extra))}', expected layers 0 to {layers - 1}, as "
            f"num_hidden_layers: {layers} in config.json says: it would be left out",
            hint="check that config.json belongs to these weights; these weights fit num_hidden_layers: "
            f"{max(extra.values()) + 1}. To leave layers out, save the model without them",
        )


def _layer_numbers(names: Iterable[str]) -> dict[str, set[int]]:
    """Return the numbers of layers, by the name of the list that they are in."""
    numbers = defaultdict[str, set[int]](set)
    for name in names:
        if match := _LAYER.match(name):
            numbers[match[1]].add(int(match[2]))
    return numbers
