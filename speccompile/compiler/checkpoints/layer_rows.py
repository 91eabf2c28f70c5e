"""Rows of keys and values that layers cache for a token, from a config alone: a plan needs them before the model is
probed. If a config leaves a size to its model's class, the largest known one is taken."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from speccompile.compiler.checkpoints.json_files import config_count
from speccompile.compiler.checkpoints.states import LISTS, WITHOUT_ATTENTION
from speccompile.compiler.checkpoints.windows import attention_windows

FULL = "full_attention"
WITHOUT_ROWS = ("linear_attention", "conv", "mamba", "recurrent", "moe", "mlp")
"""Kinds of layers without keys and values."""


class LayerRows(NamedTuple):
    """Rows of a token in one layer. heads: of keys; key, value: numbers of a head's row; window: number of latest
    positions that the layer sees, 0 for all."""

    heads: int
    key: int
    value: int
    window: int


def layer_rows(config: Mapping[str, Any], layers: int) -> tuple[LayerRows, ...]:
    """Return the rows of the layers that have keys and values of their own. config: of the text decoder."""
    if config.get("model_type") in WITHOUT_ATTENTION:
        return ()
    shared = config_count(config, "num_kv_shared_layers") or 0  # the last ones read the rows of others
    windows, kinds = attention_windows(config, layers), _kinds(config, layers)
    return tuple(
        _rows(config, layer, kinds[layer], windows[layer])
        for layer in range(layers - min(shared, layers))
        if kinds[layer] not in WITHOUT_ROWS
    )


def _kinds(config: Mapping[str, Any], layers: int) -> tuple[str, ...]:
    """Return the kind of every layer."""
    listed = next((config[name] for name in LISTS if isinstance(config.get(name), list) and config[name]), None)
    if listed is not None:
        return tuple(str(listed[layer % len(listed)]) for layer in range(layers))
    attends = set(_attending(config, layers))
    return tuple(FULL if layer in attends else "linear_attention" for layer in range(layers))


def _attending(config: Mapping[str, Any], layers: int) -> Iterator[int]:
    """Yield the layers that attend, of a config without a list of kinds."""
    indices, period = config.get("attn_layer_indices"), config_count(config, "attn_layer_period")
    every = config_count(config, "full_attention_interval")
    for layer in range(layers):
        if isinstance(indices, list):  # Bamba
            attends = layer in indices
        elif period is not None:  # Jamba
            attends = layer % period == config.get("attn_layer_offset", 0)
        else:  # Qwen 3 Next
            attends = every is None or (layer + 1) % every == 0
        if attends:
            yield layer


def _rows(config: Mapping[str, Any], layer: int, kind: str, window: int) -> LayerRows:
    if (rank := config_count(config, "kv_lora_rank")) is not None:  # latent attention: one row for all heads
        return LayerRows(1, rank, config_count(config, "qk_rope_head_dim") or 0, window)
    heads = config_count(config, "decoder_attention_heads", "num_attention_heads", "n_head", "num_heads") or 1
    hidden = config_count(config, "hidden_size", "n_embd", "d_model") or 0
    width = config_count(config, "kv_channels", "d_kv", "head_dim", "attention_head_dim") or hidden // heads
    keys = 1 if config.get("multi_query") else config_count(config, "num_key_value_heads", "num_kv_heads") or heads
    if kind == FULL and (size := config_count(config, "global_head_dim")) is not None:  # Gemma 4
        width = size
        if config.get("attention_k_eq_v", True):
            keys = config_count(config, "num_global_key_value_heads") or keys
    if kind != FULL and config.get("model_type") == "mimo_v2_flash":
        keys *= 2
    own = config.get("per_layer_config")
    differs = own.get(str(layer)) if isinstance(own, dict) else None
    if isinstance(differs, dict):
        width, keys = config_count(differs, "head_dim") or width, config_count(differs, "num_key_value_heads") or keys
    return LayerRows(keys, width, config_count(config, "v_head_dim") or width, window)
