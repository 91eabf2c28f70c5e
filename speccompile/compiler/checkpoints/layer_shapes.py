"""Check the layers of a checkpoint against its config.json, for architectures whose layers are Llama's.

Others have fused, gated or low-rank projections, or sizes that differ by layer: loading their weights compares them.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from speccompile.compiler.checkpoints.json_files import CONFIG
from speccompile.compiler.checkpoints.weights import StoredTensor
from speccompile.errors import CheckpointError, UnsupportedModelError

ALIKE = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "granite", "olmo", "olmo2", "smollm3")
"""Values of `model_type` with Llama's layers."""
ROPE_TYPES = ("default", "linear", "dynamic", "yarn", "longrope", "llama3", "proportional")
"""Kinds of position scaling that transformers computes."""

_LAYER = re.compile(r"(?:model\.)?layers\.\d+\.(?:self_attn|mlp)\.(q|k|v|o|gate|up|down)_proj\.weight")
_EMBEDDING = re.compile(r"(?:model\.)?embed_tokens\.weight")


class _Size(NamedTuple):
    """Expected size of a dimension. key: of config.json, which gives it in units of `unit` numbers."""

    key: str
    size: int
    unit: int = 1


def check_layers(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, StoredTensor]) -> None:
    """Raise CheckpointError, naming the tensor, both shapes and the key of config.json, if a layer's weight has another
    shape than the config says; and UnsupportedModelError for a kind of position scaling that is not known."""
    if config.get("model_type") not in ALIKE:
        return
    _check_rope(folder, config)
    sizes = dict(_sizes(config, tensors))
    for name, tensor in tensors.items():
        kind = "embedding" if _EMBEDDING.fullmatch(name) else match[1] if (match := _LAYER.fullmatch(name)) else ""
        if kind in sizes and len(tensor.shape) == 2:
            _compare(folder, name, tensor, sizes[kind])


def _compare(folder: Path, name: str, tensor: StoredTensor, expected: tuple[_Size | None, _Size | None]) -> None:
    for place, size in enumerate(expected):
        found = tensor.shape[place]
        if size is None or found == size.size:
            continue
        shape = [found if each is None else each.size for found, each in zip(tensor.shape, expected, strict=True)]
        fits = f"these weights fit {size.key}: {found // size.unit}" if found % size.unit == 0 else "compare the two"
        raise CheckpointError(
            f"{folder / tensor.file}: received tensor '{name}' of shape {list(tensor.shape)}, expected {shape}, as "
            f"{size.key}: {size.size // size.unit} in {CONFIG} says",
            hint=f"check that {CONFIG} belongs to these weights; {fits}",
        )


def _sizes(
    config: Mapping[str, Any], tensors: Mapping[str, StoredTensor]
) -> Iterator[tuple[str, tuple[_Size | None, _Size | None]]]:
    """Yield the kind of a weight, and its rows and columns; None where the config leaves them to transformers."""
    hidden, heads = _count(config, "hidden_size"), _count(config, "num_attention_heads")
    inner, head = _count(config, "intermediate_size"), _count(config, "head_dim")
    if hidden is None:
        return
    width = _Size("hidden_size", hidden)
    yield "embedding", (None, width)
    if inner is not None:
        middle = _Size("intermediate_size", inner)
        yield from (("gate", (middle, width)), ("up", (middle, width)), ("down", (width, middle)))
    if head is None and heads and "head_dim" not in config and config["model_type"] in ("llama", "qwen2", "olmo"):
        head = hidden // heads
    if head and heads:
        shared = _count(config, "num_key_value_heads")
        fits = (head, head) if shared is None else (_rows(tensors, "q") / heads, _rows(tensors, "k") / shared)
        is_head = fits[0] == fits[1] != head  # both fit another size of a head: it is that which disagrees
        queries = (
            _Size("head_dim", heads * head, heads) if is_head else _Size("num_attention_heads", heads * head, head)
        )
        yield from (("q", (queries, width)), ("o", (width, queries)))
        if shared:
            keys = (
                _Size("head_dim", shared * head, shared)
                if is_head
                else _Size("num_key_value_heads", shared * head, head)
            )
            yield from (("k", (keys, width)), ("v", (keys, width)))


def _rows(tensors: Mapping[str, StoredTensor], kind: str) -> int:
    """Return the rows of the first layer's projection of this kind, 0 without one."""
    found = (each for name, each in tensors.items() if (match := _LAYER.fullmatch(name)) and match[1] == kind)
    return next((each.shape[0] for each in found if each.shape), 0)


def _count(config: Mapping[str, Any], key: str) -> int | None:
    value = config.get(key)
    return value if type(value) is int and value > 0 else None


def _check_rope(folder: Path, config: Mapping[str, Any]) -> None:
    for key in ("rope_scaling", "rope_parameters"):
        scaling = config.get(key)
        kind = (scaling.get("rope_type") or scaling.get("type")) if isinstance(scaling, dict) else None
        if kind is not None and kind not in ROPE_TYPES:
            raise UnsupportedModelError(
                f"{folder / CONFIG}: {key}: received the type {kind!r}, expected one of {', '.join(ROPE_TYPES)}",
                hint="transformers computes no other; a newer config of this model may name one of them",
            )
