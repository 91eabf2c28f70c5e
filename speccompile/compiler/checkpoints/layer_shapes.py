"""Check the layers of a checkpoint against its config.json, for architectures whose projections are Llama's or Phi-3's.

Others have gated or low-rank projections, or sizes that differ by layer: loading their weights compares them.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from speccompile.compiler.checkpoints.json_files import CONFIG, config_count
from speccompile.compiler.checkpoints.weights import StoredTensor
from speccompile.errors import CheckpointError, UnsupportedModelError

DENSE = (
    "apertus", "apertus1p5_text", "arcee", "bitnet", "cohere", "cohere2", "cohere_compass_text", "cwm",
    "ernie4_5", "exaone", "exaone4", "gemma", "gemma2", "gemma3_text", "granite", "granite_swa", "hunyuan_v1_dense",
    "hyperclovax", "internlm3", "iquestcoder", "jais2", "llama", "ministral", "ministral3", "mistral", "nemotron",
    "olmo", "olmo2", "olmo3", "qwen2", "qwen3", "seed_oss", "smollm3", "stablelm", "vaultgemma",
)  # fmt: skip
"""Values of `model_type` with Llama's attention and feed-forward layers."""
ATTENTION = (
    *DENSE, "aria_text", "cohere2_moe", "dots1", "ernie4_5_moe", "flex_olmo", "glm", "glm4", "glm4_moe", "gpt_oss",
    "granitemoe", "granitemoe_swa", "granitemoeshared", "hunyuan_v1_moe", "hy_v3", "llama4_text", "mellum",
    "minimax_m2", "mixtral", "nanochat", "olmoe", "phimoe", "qwen2_moe", "qwen3_moe", "sarvam_moe", "solar_open",
    "starcoder2",
)  # fmt: skip
"""Values with Llama's attention: their feed-forward layers are experts, or others."""
FUSED = ("phi3", "phi4_multimodal")
"""Values with Phi-3's qkv_proj."""
GATE_UP = (*FUSED, "glm", "glm4")
"""Values with Phi-3's gate_up_proj."""
DERIVED_HEADS = (
    "apertus", "apertus1p5_text", "arcee", "aria_text", "bitnet", "cohere", "cohere2", "cohere_compass_text",
    "dots1", "ernie4_5_moe", "exaone", "exaone4", "flex_olmo", "glm4_moe", "granite", "granite_swa",
    "granitemoe", "granitemoe_swa", "granitemoeshared", "hunyuan_v1_dense", "hunyuan_v1_moe", "hyperclovax", "jais2",
    "llama", "ministral", "mistral", "mixtral", "nanochat", "nemotron", "olmo", "olmo2", "olmo3", "olmoe", "phi3",
    "phi4_multimodal", "phimoe", "qwen2", "qwen2_moe", "qwen3_moe", "smollm3", "stablelm", "starcoder2",
)  # fmt: skip
"""Values whose heads have hidden_size / num_attention_heads numbers unless the config says otherwise."""
ROPE_TYPES = ("default", "linear", "dynamic", "yarn", "longrope", "llama3", "proportional")
"""Kinds of position scaling that transformers computes."""

_LAYER = re.compile(r"(?:model\.)?layers\.\d+\.(?:self_attn|mlp)\.(q|k|v|o|qkv|gate|up|gate_up|down)_proj\.weight")
_EMBEDDING = re.compile(r"(?:model\.)?embed_tokens\.weight")


class _Size(NamedTuple):
    """Expected size of a dimension. key: of config.json, which gives it in units of `unit` numbers behind the first
    `others`."""

    key: str
    size: int
    unit: int = 1
    others: int = 0

    def value(self, size: int) -> int | None:
        """Return the key's value with which the dimension would have another size; None if no value gives it."""
        number, rest = divmod(size - self.others, self.unit)
        return number if number > 0 and rest == 0 else None


def check_layers(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, StoredTensor]) -> None:
    """Raise CheckpointError, naming the tensor, both shapes and the key of config.json, if a layer's weight has another
    shape than the config says; and UnsupportedModelError for a kind of position scaling that is not known."""
    if config.get("model_type") not in (*ATTENTION, *FUSED):
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
        value = size.value(found)
        fits = "compare the two" if value is None else f"these weights fit {size.key}: {value}"
        raise CheckpointError(
            f"{folder / tensor.file}: received tensor '{name}' of shape {list(tensor.shape)}, expected {shape}, as "
            f"{size.key}: {size.value(size.size)} in {CONFIG} says",
            hint=f"check that {CONFIG} belongs to these weights; {fits}",
        )


def _sizes(
    config: Mapping[str, Any], tensors: Mapping[str, StoredTensor]
) -> Iterator[tuple[str, tuple[_Size | None, _Size | None]]]:
    """Yield the kind of a weight, and its rows and columns; None where the config leaves them to transformers."""
    hidden = config_count(config, "hidden_size")
    if hidden is None:
        return
    width, kind = _Size("hidden_size", hidden), config["model_type"]
    yield "embedding", (None, width)
    inner = config_count(config, "intermediate_size")
    if inner is not None:
        middle = _Size("intermediate_size", inner)
        if kind in DENSE:
            yield from (("gate", (middle, width)), ("up", (middle, width)), ("down", (width, middle)))
        if kind in GATE_UP:
            yield from (("gate_up", (_Size(middle.key, 2 * inner, 2), width)), ("down", (width, middle)))
    heads, head = config_count(config, "num_attention_heads"), config_count(config, "head_dim")
    if head is None and heads and config.get("head_dim") is None and kind in DERIVED_HEADS:
        head = hidden // heads
    if heads and head:
        yield from _attention_sizes(width, heads, head, config_count(config, "num_key_value_heads"), tensors)


def _attention_sizes(
    width: _Size, heads: int, head: int, shared: int | None, tensors: Mapping[str, StoredTensor]
) -> Iterator[tuple[str, tuple[_Size | None, _Size | None]]]:
    """Yield the kinds of an attention's weights. heads: of queries; head: size of each; shared: heads of keys."""
    rows = {kind: _shape(tensors, kind)[0] for kind in ("q", "k")}
    fits = (head, head) if shared is None else (rows["q"] / heads, rows["k"] / shared)
    is_head = fits[0] == fits[1] not in (0, head)  # queries and keys agree on another size of a head
    queries = _Size("head_dim", heads * head, heads) if is_head else _Size("num_attention_heads", heads * head, head)
    yield from (("q", (queries, width)), ("o", (width, queries)))
    if shared:
        keys = (
            _Size("head_dim", shared * head, shared) if is_head else _Size("num_key_value_heads", shared * head, head)
        )
        yield from (("k", (keys, width)), ("v", (keys, width)))
        if _shape(tensors, "o")[1] == queries.size:  # else the output projection is reported
            size = queries.size + 2 * keys.size
            yield "qkv", (_Size("num_key_value_heads", size, 2 * head, queries.size), width)


def _shape(tensors: Mapping[str, StoredTensor], kind: str) -> tuple[int, int]:
    """Return the shape of the first layer's projection of this kind, zeros without one."""
    for name, tensor in tensors.items():
        if (found := _LAYER.fullmatch(name)) and found[1] == kind and len(tensor.shape) == 2:
            return tensor.shape[0], tensor.shape[1]
    return 0, 0


def _check_rope(folder: Path, config: Mapping[str, Any]) -> None:
    for key in ("rope_scaling", "rope_parameters"):
        scaling = config.get(key)
        kind = (scaling.get("rope_type") or scaling.get("type")) if isinstance(scaling, dict) else None
        if kind is not None and kind not in ROPE_TYPES:
            raise UnsupportedModelError(
                f"{folder / CONFIG}: {key}: received the type {kind!r}, expected one of {', '.join(ROPE_TYPES)}",
                hint="transformers computes no other; a newer config of this model may name one of them",
            )
