"""Read the description of decoder layers from a config with the keys of transformers' Llama and Qwen 3."""

from collections.abc import Collection
from typing import Any

from speccompile.bundle.media import AXES
from speccompile.drafters.dialects import Keys
from speccompile.plan.head import TensorSource
from speccompile.plan.layers import MROPE, LayerShape

ROPE_TYPES = ("default", "linear", "dynamic", "llama3", "yarn", "longrope", "proportional")
_NO_LAYER = "only dense decoder layers of Llama's and Qwen's form are compiled"
_FOREIGN = (
    "kv_lora_rank", "q_lora_rank", "num_experts", "num_local_experts", "n_routed_experts", "attention_sinks",
    "final_logit_softcapping", "attn_logit_softcapping", "query_pre_attn_scalar", "partial_rotary_factor",
)  # fmt: skip
"""Keys of layers with another formula."""


def read_layers(
    keys: Keys, tensors: dict[str, TensorSource], count: int | None = None, known: Collection[str] = ()
) -> LayerShape:
    """Return the decoder layers that a config describes. Layers have a bias if the config or the file has one.

    tensors: by normalised names. count: number of layers, instead of the config's. known: keys of other formulas that
    mean something else in this config. Raise CheckpointError.
    """
    for key in _FOREIGN:
        if key not in known:
            keys.expect(key, reason=_NO_LAYER)
    heads = keys.count("num_attention_heads")
    hidden = keys.count("hidden_size")
    layers = count or keys.count("num_hidden_layers", default=1)
    model_type = str(keys.values.get("model_type") or "llama")
    bias = keys.flag("attention_bias", "qkv_bias", default=False)
    own = "layers.0.self_attn."
    keys.ignore("num_hidden_layers", "vocab_size", "max_seq_len")
    head_dim = keys.count("head_dim", default=max(1, hidden // heads))
    return LayerShape(
        hidden_size=hidden,
        intermediate_size=keys.count("intermediate_size"),
        heads=heads,
        kv_heads=keys.count("num_key_value_heads", default=heads),
        head_dim=head_dim,
        eps=keys.number("rms_norm_eps", default=1e-6),
        activation=keys.word("hidden_act", "hidden_activation", default="silu"),
        rope=_rope(keys, head_dim),
        positions=keys.count("max_position_embeddings", default=2048),
        windows=_windows(keys, layers),
        qk_norm=f"{own}q_norm.weight" in tensors or model_type == "qwen3",
        qkv_bias=bias or f"{own}q_proj.bias" in tensors,
        output_bias=(bias and model_type == "llama") or f"{own}o_proj.bias" in tensors,
        mlp_bias=keys.flag("mlp_bias", default=False),
    )


def _rope(keys: Keys, head_dim: int) -> dict[str, Any]:
    """Return transformers' `rope_parameters`, also from an older config's `rope_theta` (default 10000) and
    `rope_scaling`, in which the type of M-RoPE may be called so."""
    theta = keys.number("rope_theta", default=10000.0)
    written = keys.get("rope_parameters", "rope_scaling", default={})
    if not isinstance(written, dict):
        raise keys.wrong("rope_scaling", written, "a mapping or null")
    rope = {"rope_theta": theta} | {name: value for name, value in written.items() if value is not None}
    kind = rope.pop("type", None)
    rope.setdefault("rope_type", kind or "default")
    if rope["rope_type"] == "mrope":
        rope["rope_type"] = "default"
    sections = rope.get(MROPE)
    if sections is not None and not _are_sections(sections, head_dim):
        expected = f"three numbers that add up to {head_dim // 2}, the rotary frequencies of a head"
        raise keys.wrong(f"rope_scaling.{MROPE}", sections, expected)
    if rope["rope_type"] not in ROPE_TYPES:
        raise keys.wrong("rope_scaling", rope["rope_type"], f"one of {', '.join(ROPE_TYPES)}")
    original = keys.get("original_max_position_embeddings")
    if original is not None:
        rope.setdefault("original_max_position_embeddings", original)
    return rope


def _are_sections(value: Any, head_dim: int) -> bool:
    is_list = isinstance(value, list) and len(value) == AXES and all(type(each) is int and each >= 0 for each in value)
    return is_list and 2 * sum(value) == head_dim


def _windows(keys: Keys, layers: int) -> tuple[int, ...]:
    """Return the sliding window of every layer, 0 for none."""
    window = keys.get("sliding_window", default=0)
    kinds = keys.get("layer_types")
    uses = keys.get("use_sliding_window", default=kinds is not None)
    if kinds is None:
        return (window if uses else 0,) * layers
    if not isinstance(kinds, list) or len(kinds) != layers or set(kinds) - {"full_attention", "sliding_attention"}:
        raise keys.wrong("layer_types", kinds, f"{layers} times full_attention or sliding_attention")
    return tuple(window if kind == "sliding_attention" else 0 for kind in kinds)
