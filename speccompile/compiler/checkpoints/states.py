"""Recurrent states of a model by its config: convolutions and linear recurrences."""

from typing import Any

from speccompile.compiler.checkpoints import layer_types

LISTS = (*layer_types.LISTS, "block_types")
"""Config keys of the list with the kind of every layer, or of a repeated pattern."""

KINDS = ("linear_attention", "conv", "hybrid", "hybrid_sliding", "mamba", "recurrent")
"""Kinds of layers with a recurrent state."""

MODEL_TYPES = (
    "bailing_hybrid", "bamba", "falcon_h1", "falcon_mamba", "glm5_next_text", "granitemoehybrid", "inkling2_text",
    "inkling_text", "jamba", "kimi_linear", "lfm2", "lfm2_moe", "lfm3", "mamba", "mamba2", "minimax", "nemotron_h",
    "olmo_hybrid", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_next", "qwen4_exp_text", "recurrent_gemma", "rwkv",
    "xlstm", "zamba", "zamba2", "zaya",
)  # fmt: skip
"""Model types with such layers whose config has no list."""

WITHOUT_ATTENTION = ("falcon_mamba", "mamba", "mamba2", "rwkv", "xlstm")
"""Model types of these without attention, and so without keys and values."""


def recurrent_layers(config: dict[str, Any]) -> str | None:
    """Return a description of what has recurrent states; None for a model without them. config: of a language model, or
    of the text decoder."""
    listed = [config[name] for name in LISTS if isinstance(config.get(name), list)]
    for kinds in listed:
        for layer, kind in enumerate(kinds):
            if kind in KINDS:
                return f"layer {layer} is of type {kind}"
    model_type = config.get("model_type")
    return f"its model type is {model_type}" if model_type in MODEL_TYPES and not listed else None
