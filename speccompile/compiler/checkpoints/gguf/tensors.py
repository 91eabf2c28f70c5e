"""Places of the Hugging Face model's tensors in GGUF files, and what undoes the converter's changes."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speccompile.compiler.checkpoints.gguf.architectures import EXPERTS, KEYS, QUERIES
from speccompile.compiler.checkpoints.gguf.config import FACTORS, GgufModel
from speccompile.compiler.checkpoints.gguf.reader import GgufTensor, corrupt
from speccompile.errors import UnsupportedModelError

_LAYER = re.compile(r"blk\.(0|[1-9]\d*)\.(.+)")


@dataclass(frozen=True)
class PlacedTensor:
    """A tensor of the Hugging Face model. file: name of its GGUF file; type: a key of `block_types.BY_NAME`; shape: as
    transformers has it; heads: of which rows lie in pairs, 0 for none; less_one: whether 1 was added to it."""

    file: str
    type: str
    shape: tuple[int, ...]
    offset: int
    size: int
    heads: int = 0
    less_one: bool = False

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "shape": list(self.shape)}


def place_tensors(model: GgufModel, config: dict[str, Any]) -> dict[str, PlacedTensor]:
    """Return name in transformers -> tensor. Raise UnsupportedModelError for a tensor that is not part of the model,
    CheckpointError for layers that are missing."""
    found: dict[str, PlacedTensor] = {}
    layers = config["num_hidden_layers"]
    for name, (path, tensor) in model.tensors.items():
        if name == FACTORS:
            continue  # part of the config
        layer = _LAYER.fullmatch(name)
        rule = model.row.layer.get(layer[2]) if layer and int(layer[1]) < layers else model.row.ends.get(name)
        if rule is None:
            raise _unclaimed(model, path, name, layers)
        own, change = rule
        if ".experts." in own and change != EXPERTS:
            _check_experts(path, name, tensor, config)
        prefix = f"model.layers.{layer[1]}." if layer else ""
        for part_name, part in _parts(path, name, tensor, own, config if change == EXPERTS else None):
            heads = {QUERIES: "num_attention_heads", KEYS: "num_key_value_heads"}.get(change)
            count = 0 if heads is None else config[heads]
            if count and part.shape[0] % (2 * count):
                raise corrupt(path, f"tensor '{name}' of {part.shape[0]} rows", f"a multiple of {2 * count}")
            found[prefix + part_name] = PlacedTensor(
                path.name, part.type, part.shape, part.offset, part.size, count, change == "less one"
            )
    _check_layers(model, layers)
    return found


def _parts(
    path: Path, name: str, tensor: GgufTensor, own: str, experts: dict[str, Any] | None
) -> list[tuple[str, GgufTensor]]:
    """Return the tensor under its name in transformers, or each expert's part of it."""
    if experts is None:
        return [(own, tensor)]
    count = experts["num_experts"]
    if len(tensor.shape) != 3 or tensor.shape[0] != count:
        raise corrupt(path, f"tensor '{name}' of shape {list(tensor.shape)}", f"{count} experts, each of two axes")
    size = tensor.size // count
    return [
        (own.format(index), GgufTensor(tensor.type, tensor.shape[1:], tensor.offset + index * size, size))
        for index in range(count)
    ]


def _check_experts(path: Path, name: str, tensor: GgufTensor, config: dict[str, Any]) -> None:
    """Raise CheckpointError for experts of other shapes than the config's: they are joined before anything compares
    them."""
    inner, hidden = config["intermediate_size"], config["hidden_size"]
    shape = (hidden, inner) if "ffn_down" in name else (inner, hidden)
    expected = (config["num_local_experts"], *(shape[:1] if name.endswith(".bias") else shape))
    if tensor.shape != expected:
        raise corrupt(path, f"tensor '{name}' of shape {list(tensor.shape)}", f"{list(expected)}, as the keys say")


def _check_layers(model: GgufModel, layers: int) -> None:
    """Raise CheckpointError if a layer lacks a tensor that another one has."""
    suffixes = {match[2] for name in model.tensors if (match := _LAYER.fullmatch(name))}
    required = set(model.row.layer) - set(model.row.optional)
    for suffix in sorted(suffixes | required):
        for index in range(layers):
            model.tensor(f"blk.{index}.{suffix}")


def _unclaimed(model: GgufModel, path: Path, name: str, layers: int) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{path}: received tensor '{name}', expected those of a model of {model.name} with {layers} layers",
        hint="use the model's safetensors, or report the tensor: without it the model might be computed wrongly",
    )
