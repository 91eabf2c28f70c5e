"""Rows of keys and values by configs alone: those that transformers' own caches hold."""

import json

import pytest
import torch

from speccompile.compiler.checkpoints.layer_rows import LayerRows, layer_rows
from speccompile.compiler.checkpoints.windows import attention_windows
from tests import zoo
from tests.suite.selection import sweep_but

ELSEWHERE = ("minimax", "recurrent_gemma")
"""Families whose states are in no cache of transformers."""
FIRST = (
    "llama",
    "gemma2",
    "gpt_bigcode",
    "qwen3_5_text",
    "mamba2",
    "gemma4_text",
    "deepseek_v3",
    "jamba",
    "mimo_v2_flash",
)


@torch.no_grad()
def held(name: str) -> list[tuple[int, int]]:
    """Return the numbers of keys and of values that a token leaves in each layer that has some."""
    model = zoo.model(name)
    cache = model(torch.arange(3, 11)[None], use_cache=True).past_key_values
    cache = getattr(cache, "self_attention_cache", cache)  # of an encoder-decoder
    rows = [(layer.keys, layer.values) for layer in cache.layers if getattr(layer, "keys", None) is not None]
    return [(key[0, :, 0].numel(), value[0, :, 0].numel()) for key, value in rows if key.numel()]


@pytest.mark.parametrize("name", sweep_but(FIRST, [n for n in zoo.names("works") if n not in ELSEWHERE], zoo.REASON))
def test_a_config_says_what_a_token_leaves(name):
    config = zoo.config(name)
    layers = config.decoder_layers if config.is_encoder_decoder else config.num_hidden_layers
    found = layer_rows(json.loads(config.to_json_string()), layers)
    assert [(each.heads * each.key, each.heads * each.value) for each in found] == held(name)


def test_windows_are_those_of_the_layers_that_have_rows():
    config = {"layer_types": ["linear_attention", "sliding_attention", "full_attention"], "sliding_window": 9,
              "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}  # fmt: skip
    assert attention_windows(config, 3) == (0, 9, 0)
    assert layer_rows(config, 3) == (LayerRows(2, 8, 8, 9), LayerRows(2, 8, 8, 0))
