"""Places of the Hugging Face model's tensors in GGUF files, and what undoes the converter's changes."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speccompile.compiler.checkpoints.gguf.architectures import (
    DECAYS,
    EXPERTS,
    FROM_VALUES,
    IDS,
    KERNELS,
    KEYS,
    LESS_ONE,
    MIXED,
    MIXED_KERNELS,
    MTP_OPTIONAL,
    QUERIES,
    VALUE_HEADS,
    VALUES,
    Rule,
)
from speccompile.compiler.checkpoints.gguf.block_types import INTEGERS
from speccompile.compiler.checkpoints.gguf.heads import GgufHead
from speccompile.compiler.checkpoints.gguf.model import GgufModel
from speccompile.compiler.checkpoints.gguf.reader import GgufTensor
from speccompile.compiler.checkpoints.gguf.rope import FACTORS, LONG, SHORT
from speccompile.errors import UnsupportedModelError
from speccompile.machine.formats.safetensors import corrupt

_LAYER = re.compile(r"blk\.(0|[1-9]\d*)\.(.+)")


@dataclass(frozen=True)
class PlacedTensor:
    """A tensor of the Hugging Face model. file: name of its GGUF file; type: a key of `block_types.BY_NAME`; shape: as
    transformers has it; heads: of which rows lie in pairs, 0 for none; less_one: whether 1 was added to it; is_decay:
    whether it holds -exp of its values; tiles: how heads of values lie, see `weights.gguf.weight.ValueTiles`, empty for
    others; has_columns: whether these are columns."""

    file: str
    type: str
    shape: tuple[int, ...]
    offset: int
    size: int
    heads: int = 0
    less_one: bool = False
    is_decay: bool = False
    tiles: tuple[int, ...] = ()
    has_columns: bool = False

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "shape": list(self.shape), "tiles": list(self.tiles)}


def place_tensors(model: GgufModel, config: dict[str, Any]) -> dict[str, PlacedTensor]:
    """Return name in transformers -> tensor. Raise UnsupportedModelError for a tensor that is not part of the model,
    CheckpointError for layers that are missing."""
    found = _place(model, config, "model.")
    _check_layers(model, config)
    return found


def place_head(head: GgufHead, config: dict[str, Any]) -> dict[str, PlacedTensor]:
    """Return published name -> tensor of a drafter's head. Raise UnsupportedModelError for a tensor that such heads do
    not have; its drafting method finds those that are missing."""
    return _place(head, config, "")


def _place(model: GgufModel | GgufHead, config: dict[str, Any], first: str) -> dict[str, PlacedTensor]:
    """Return name -> tensor. first: begins the names of layers' tensors."""
    found: dict[str, PlacedTensor] = {}
    for name, (path, tensor) in model.tensors.items():
        if name in (FACTORS, LONG, SHORT):
            continue  # part of the config
        layer = _LAYER.fullmatch(name)
        rules = _layer_rules(model, config, int(layer[1])) if layer else model.row.ends
        rule = rules.get(layer[2] if layer else name)
        if rule is None:
            raise _unclaimed(model, path, name, config["num_hidden_layers"])
        own, change = rule
        if (tensor.type == INTEGERS) != (change == IDS):
            raise corrupt(path, f"tensor '{name}' of type {tensor.type}", "token ids" if change == IDS else "numbers")
        if ".experts." in own and change != EXPERTS:
            _check_experts(path, name, tensor, config)
        prefix = f"{first}layers.{layer[1]}." if layer and not own.startswith("mtp.") else ""
        for part_name, part in _parts(path, name, tensor, own, config if change == EXPERTS else None):
            heads = {QUERIES: "num_attention_heads", KEYS: "num_key_value_heads"}.get(change)
            count = 0 if heads is None else config[heads]
            if count and part.shape[0] % (2 * count):
                raise corrupt(path, f"tensor '{name}' of {part.shape[0]} rows", f"a multiple of {2 * count}")
            tiles = _tiles(path, name, part, change, config)
            shape = (part.shape[0], 1, *part.shape[1:]) if change in (KERNELS, MIXED_KERNELS) else part.shape
            found[prefix + part_name] = PlacedTensor(
                path.name, part.type, shape, part.offset, part.size, count, change == LESS_ONE, change == DECAYS,
                tiles, change == FROM_VALUES,
            )  # fmt: skip
    return found


def _layer_rules(model: GgufModel | GgufHead, config: dict[str, Any], index: int) -> Mapping[str, Rule]:
    """Return the rules of a layer, of one of multi-token prediction as well; none for a layer that does not exist."""
    row, count = model.row, config["num_hidden_layers"]
    if index < count:
        return row.rules(config["layer_types"][index]) if row.kinds else row.layer
    if row.mtp is None or index >= _all_layers(config):
        return {}
    kind, more = row.mtp
    own = {name: (f"mtp.layers.{index - count}.{own}", rule) for name, (own, rule) in row.rules(kind).items()}
    return {**own, **more}


def _all_layers(config: dict[str, Any]) -> int:
    return int(config["num_hidden_layers"] + config.get("mtp_num_hidden_layers", 0))


_TILED = {VALUES: False, MIXED: True, MIXED_KERNELS: True, VALUE_HEADS: None, DECAYS: None, FROM_VALUES: False}
"""Operation on heads of values -> whether queries and keys come before them; None where a head is one row."""


def _tiles(path: Path, name: str, tensor: GgufTensor, change: str, config: dict[str, Any]) -> tuple[int, ...]:
    """Return the order of a tensor's heads of values, empty for other tensors, and for heads in one order already.
    Raise CheckpointError for another number of rows."""
    if change not in _TILED:
        return ()
    keys, values = config["linear_num_key_heads"], config["linear_num_value_heads"]
    size = 1 if _TILED[change] is None else config["linear_value_head_dim"]
    before = 2 * keys * config["linear_key_head_dim"] if _TILED[change] else 0
    rows = tensor.shape[1 if change == FROM_VALUES else 0]
    if rows != before + values * size:
        raise corrupt(path, f"tensor '{name}' of shape {list(tensor.shape)}", f"{before + values * size}, not {rows}")
    return () if values == keys else (keys, values // keys, size, before)


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


def _check_layers(model: GgufModel, config: dict[str, Any]) -> None:
    """Raise CheckpointError if a layer lacks a tensor, or one of the optional ones that another layer has."""
    suffixes = {match[2] for name in model.tensors if (match := _LAYER.fullmatch(name))}
    left_out = (set(model.row.optional) - suffixes) | MTP_OPTIONAL
    for index in range(_all_layers(config)):  # ends at the first one that is missing, whatever number the file says
        for suffix in sorted(set(_layer_rules(model, config, index)) - left_out):
            model.tensor(f"blk.{index}.{suffix}")


def _unclaimed(model: GgufModel | GgufHead, path: Path, name: str, layers: int) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{path}: received tensor '{name}', expected those of a model of {model.name} with {layers} layers",
        hint="use the safetensors, or report the tensor: without it the model might be computed wrongly",
    )
