"""Assistants as transformers' own class for those of Gemma 4 writes them."""

from pathlib import Path
from typing import Any

import torch
from transformers import Gemma4AssistantConfig, Gemma4AssistantForCausalLM, Gemma4TextConfig, PretrainedConfig

from speccompile.drafters.assistant.network import every_layer_shares
from tests import zoo
from tests.heads import WIDTH

CENTROIDS, TOP_K = 16, 6


def assistant(
    folder: Path, target: PretrainedConfig, *, layers: int = 4, sparse: bool = False, seed: int = 0, **settings: Any
) -> Path:
    """Return one for this target: three sliding layers before a full one, where it has such; else full layers alone.
    settings: of its text_config."""
    built = model(target, layers=layers, sparse=sparse, seed=seed, **settings)
    built.save_pretrained(folder)
    return folder


def model(
    target: PretrainedConfig, *, layers: int = 4, sparse: bool = False, seed: int = 0, **settings: Any
) -> Gemma4AssistantForCausalLM:
    """Return it in float32 and eager, with weights that depend on the seed alone."""
    text = Gemma4TextConfig(**(_text(target, layers) | settings))
    config = Gemma4AssistantConfig(
        text_config=text, backbone_hidden_size=target.hidden_size, use_ordered_embeddings=sparse,
        num_centroids=CENTROIDS, centroid_intermediate_top_k=TOP_K,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        with every_layer_shares(text):
            built = Gemma4AssistantForCausalLM(config)
        built.set_attn_implementation("eager")
        zoo.enliven(built)
        if sparse:
            built.masked_embedding.token_ordering.copy_(torch.randperm(text.vocab_size))
    return built.eval().requires_grad_(False)


def _text(target: PretrainedConfig, layers: int) -> dict[str, Any]:
    is_gemma = isinstance(target, Gemma4TextConfig)
    own = target.per_layer_config[target.layer_types.index(zoo.SLIDING)] if is_gemma else target
    heads = target.num_attention_heads
    width = getattr(own, "head_dim", None) or target.hidden_size // heads
    common = {
        "vocab_size": target.vocab_size, "hidden_size": WIDTH, "intermediate_size": 48, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": getattr(own, "num_key_value_heads", heads),
        "head_dim": width, "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0,
        "sliding_window": zoo.WINDOW, "max_position_embeddings": 256,
    }  # fmt: skip
    if not is_gemma:
        return common | {"layer_types": [zoo.FULL] * layers, "global_head_dim": width}
    full = target.per_layer_config[target.layer_types.index(zoo.FULL)]
    return common | {
        "layer_types": [zoo.SLIDING] * (layers - 1) + [zoo.FULL], "global_head_dim": full.head_dim,
        "num_global_key_value_heads": full.num_key_value_heads, "attention_k_eq_v": True,
        "rope_parameters": target.rope_parameters,
    }  # fmt: skip
