"""A model in GGUF files as the files of a folder in Hugging Face layout."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from speccompile.compiler.checkpoints.gguf.architectures import HEADS
from speccompile.compiler.checkpoints.gguf.config import generation_config, make_config
from speccompile.compiler.checkpoints.gguf.given_tokenizer import take_tokenizer
from speccompile.compiler.checkpoints.gguf.heads import GgufHead, make_head_config
from speccompile.compiler.checkpoints.gguf.metadata import Metadata
from speccompile.compiler.checkpoints.gguf.model import ARCHITECTURE, GgufModel, GgufPart
from speccompile.compiler.checkpoints.gguf.splits import read_split
from speccompile.compiler.checkpoints.gguf.tensors import PlacedTensor, place_head, place_tensors
from speccompile.compiler.checkpoints.gguf.tokenizer import make_tokenizer
from speccompile.compiler.checkpoints.json_files import CONFIG
from speccompile.machine.formats.json_files import read_json_object, wrong

GGUF_INDEX = "gguf.index.json"
"""File that says where each tensor lies: the weights of such a folder."""


def convert(files: tuple[Path, ...], tokenizer: Path | None = None) -> dict[str, Any]:
    """Return file name -> JSON object or text, of a folder that describes the model in GGUF files. tokenizer: folder of
    the tokenizer to take instead of the files' own. Raise CheckpointError for files that are damaged,
    UnsupportedModelError for a model, or parts of one, that cannot be read."""
    parts = read_split(files)
    metadata = Metadata(parts[0].path, parts[0].metadata)
    tensors = {name: (part.path, tensor) for part in parts for name, tensor in part.tensors.items()}
    if metadata.optional(ARCHITECTURE) in HEADS:
        return _convert_head(GgufHead(metadata, tensors))
    model = GgufModel(metadata, tensors)
    config = make_config(model)
    placed = place_tensors(model, config)
    found: dict[str, Any] = {
        CONFIG: config,
        "generation_config.json": generation_config(model),
        GGUF_INDEX: _index(model, placed),
    }
    found |= _tokenizer(model) if tokenizer is None else take_tokenizer(metadata, tokenizer)
    metadata.refuse_unclaimed()
    return found


def _convert_head(head: GgufHead) -> dict[str, Any]:
    """Return the same of a folder with the head of a drafter, which has the target's tokenizer."""
    config = make_head_config(head)
    placed = place_head(head, config)
    head.metadata.refuse_unclaimed()
    return {CONFIG: config, GGUF_INDEX: _index(head, placed)}


def _index(model: GgufPart, placed: dict[str, PlacedTensor]) -> dict[str, Any]:
    return {"types": _types(model), "tensors": {name: each.to_json() for name, each in placed.items()}}


def _tokenizer(model: GgufModel) -> dict[str, Any]:
    made = make_tokenizer(model.metadata, model.name, model.vocabulary_size)
    return {} if made is None else {"tokenizer.json": made[0], "tokenizer_config.json": made[1]}


def _types(model: GgufPart) -> str:
    """Describe the types of a file's tensors: how many there are of each."""
    kinds = Counter(tensor.type for _, tensor in model.tensors.values())
    return ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())


def read_index(folder: Path) -> tuple[str, dict[str, PlacedTensor]] | None:
    """Return the description of the types in GGUF files, and name -> tensor; None for a folder of another kind. Raise
    CheckpointError."""
    path = folder / GGUF_INDEX
    written = read_json_object(path)
    if written is None:
        return None
    try:
        tensors = {
            name: PlacedTensor(**{**each, "shape": tuple(each["shape"]), "tiles": tuple(each["tiles"])})
            for name, each in written["tensors"].items()
        }
        return str(written["types"]), tensors
    except (AttributeError, KeyError, TypeError):
        raise wrong(path, json.dumps(written)[:60], "what speccompile writes there") from None
