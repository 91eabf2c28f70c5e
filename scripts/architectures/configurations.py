"""Tiny configurations of every class that transformers maps to a causal language model, made from the class's own.

    model_types()               every `model_type` of MODEL_FOR_CAUSAL_LM_MAPPING, and the multimodal ones that are read
    configuration("lfm2")       its class with every field that is a size made small, one layer of each of its kinds

A size is known by the name of its field, which families share (`tests/zoo.py` has the common ones). What rules cannot
know is in `CORRECTIONS`.
"""

from collections.abc import Container
from typing import Any

from transformers import CONFIG_MAPPING, PreTrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from speccompile.compiler.checkpoints.multimodal import TYPES
from tests import zoo

SIZES: dict[str, Any] = {
    **zoo.SIZES,
    # No size is a multiple of a vector register, nor is a share of one: sums and curves of libraries round apart there.
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "lru_width"), 72),
    **dict.fromkeys(("embedding_size", "emb_dim", "input_embedding_size"), 72),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "decoder_ffn_dim", "encoder_ffn_dim", "dff", "dim_ff"), 100),
    **dict.fromkeys(("d_inner", "ffn_hidden_size", "n_inner", "intermediate_size_mlp"), 100),
    **dict.fromkeys(("dense_intermediate_size", "feed_forward_size"), 100),
    **dict.fromkeys(("decoder_layers", "encoder_layers", "depth"), 2),
    **dict.fromkeys(("num_attention_heads", "num_heads", "n_head", "n_heads", "attention_heads"), 6),
    **dict.fromkeys(("decoder_attention_heads", "encoder_attention_heads", "swa_num_attention_heads"), 6),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads", "swa_num_key_value_heads", "swa_num_kv_heads"), 3),
    "index_n_heads": 2,
    **dict.fromkeys(("head_dim", "swa_head_dim", "dim_head", "kv_channels"), 12),
    "index_head_dim": 16,
    **dict.fromkeys(("v_head_dim", "swa_v_head_dim"), 20),
    "qk_rope_head_dim": 10,
    "qk_nope_head_dim": 14,
    "rotary_dim": 8,
    "kv_lora_rank": 20,
    "o_lora_rank": 16,
    "q_lora_rank": 28,
    "global_head_dim": 20,
    # Attention windows far shorter than the positions.
    **dict.fromkeys(("sliding_window", "sliding_window_size", "attention_window_size", "window_size"), zoo.WINDOW),
    **dict.fromkeys(("attention_chunk_size", "local_attention_window_len"), zoo.WINDOW),
    "local_attention": 2 * zoo.WINDOW,  # to both sides
    # Experts: a dense layer first, then eight of sixteen, of one group of two where there are groups.
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 16),
    "zero_expert_num": 4,
    **dict.fromkeys(("num_experts_per_tok", "moe_topk", "moe_k", "top_k_experts"), 8),
    "n_group": 2,
    **dict.fromkeys(("topk_group", "n_shared_experts", "num_shared_experts", "moe_num_shared_experts"), 1),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 36),
    **dict.fromkeys(("shared_experts_intermediate_size", "shared_intermediate_size"), 36),
    **dict.fromkeys(("moe_shared_expert_intermediate_size", "expert_ffn_hidden_size"), 36),
    **dict.fromkeys(("first_k_dense_replace", "num_dense_layers"), 1),
    # Recurrences: Mamba's, Gated DeltaNet's and their kin.
    **dict.fromkeys(("mamba_d_state", "state_size", "ssm_state_size"), 10),
    **dict.fromkeys(("mamba_n_heads", "mamba_num_heads", "n_mamba_heads"), 4),
    "mamba_head_dim": 18,
    **dict.fromkeys(("mamba_n_groups", "n_groups", "mamba_ngroups"), 2),
    **dict.fromkeys(("mamba_chunk_size", "chunk_size", "block_size"), 16),
    **dict.fromkeys(("linear_num_key_heads", "linear_num_heads"), 2),
    "linear_num_value_heads": 4,
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim", "linear_head_dim"), 12),
    "block_multiple_of": 8,
    # Caches and tables of their own.
    **dict.fromkeys(("vocab_size_per_layer_input", "unpadded_vocab_size"), zoo.VOCABULARY),
    **dict.fromkeys(("hidden_size_per_layer_input", "laurel_rank", "adapter_rank", "dim_model_base"), 12),
    **dict.fromkeys(("router_hidden_size", "rel_extent", "hc_lowrank", "index_topk"), 16),
    "query_pre_attn_scalar": 4,
    "max_target_positions": 256,
    # Not drafters, which are no part of the model that transformers makes.
    **dict.fromkeys(("num_mtp_layers", "num_nextn_predict_layers", "mtp_num_hidden_layers"), 0),
    # Greedy decoding is to be nothing but the best token.
    **dict.fromkeys(("forced_bos_token_id", "forced_eos_token_id", "suppress_tokens", "begin_suppress_tokens"), None),
    # Encoders' siblings and vision towers.
    "is_decoder": True,
    "image_size": 28,
    "patch_size": 14,
}

KINDS = ("layer_types", "layers_block_type", "block_types", "attn_layers", "mlp_layer_types")
"""Fields that name the kind of every layer."""
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers", "num_decoder_layers")

ROPE = {"rope_type": "default", "rope_theta": 10000.0}

MIXED = ["linear_attention", "hybrid"] * 2

CORRECTIONS: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1]},
    "cohere_compass_text": {
        "layer_types": [zoo.SLIDING, zoo.FULL],
        "rope_parameters": {zoo.SLIDING: ROPE, zoo.FULL: ROPE},
    },
    "blt": {
        "encoder_hash_byte_group_vocab": 64,
        "encoder_config": {"hidden_size_global": 72},
        "decoder_config": {"hidden_size_global": 72},
    },
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 10000.0},
        "ffn_config": {"ffn_hidden_size": 96, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "diffllama": {"num_key_value_heads": 2},
    "dots3_note": {
        "vision_config": {"adapter_in_dim": 72, "adapter_out_dim": 72},
        "audio_config": {"adapter_input_size": 72, "adapter_out_dim": 72},
    },
    "falcon_h1": {"mamba_d_ssm": 64, "mamba_d_head": 16},
    "gemma3n_text": {
        "num_hidden_layers": 4,
        "num_kv_shared_layers": 2,
        "layer_types": [zoo.SLIDING, zoo.FULL] * 2,
        "activation_sparsity_pattern": [0.9, 0.0, 0.0, 0.0],
        "intermediate_size": [96] * 4,
    },
    "gemma4_text": {"num_hidden_layers": 4, "num_kv_shared_layers": 2, "layer_types": [zoo.SLIDING, zoo.FULL] * 2},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "granitemoehybrid": {"layer_types": ["linear_attention", zoo.FULL]},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "use_mamba_kernels": False},
    "laguna": {"layer_types": [zoo.FULL, zoo.SLIDING]},
    "lfm2": {"layer_types": ["conv", zoo.FULL]},
    "lfm2_moe": {"layer_types": ["conv", zoo.FULL]},
    "longcat_flash": {"head_dim": 8},
    "mamba2": {"num_heads": 4, "head_dim": 36},
    "mellum": {"layer_types": [zoo.FULL, zoo.SLIDING]},
    "minimax_m3_vl_text": {
        "layer_types": [zoo.FULL, "minimax_m3_sparse"],
        "mlp_layer_types": ["dense", "sparse"],
        "index_block_size": 8,
        "index_topk_blocks": 2,
    },
    "ministral": {"layer_types": [zoo.SLIDING, zoo.FULL]},
    "moshi": {"audio_vocab_size": zoo.VOCABULARY},
    "qwen4_exp_text": {
        "indexer_n_heads": 2,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 16,
        "indexer_budget": 16,
        "indexer_compress_ratio": 4,
    },
    "qwen2_5_vl": {"text_config": {"rope_parameters": ROPE | {"mrope_section": [1, 2, 3]}}},
    "qwen2": {"use_sliding_window": True, "layer_types": [zoo.FULL, zoo.SLIDING]},
    "recurrent_gemma": {"num_hidden_layers": 3},
    "reformer": {
        "attn_layers": ["local", "lsh"],
        "axial_pos_embds_dim": (32, 32),
        "axial_pos_shape": (16, 16),
        "num_buckets": 4,
        "attention_head_size": 16,
    },
    "stablelm": {"partial_rotary_factor": 0.5},
    "xmod": {"default_language": "en_XX"},
    "zamba": {"layers_block_type": MIXED, "num_hidden_layers": 4},
    "zamba2": {"layers_block_type": MIXED, "layer_types": MIXED, "num_hidden_layers": 4},
    "zaya": {"num_experts_per_tok": 1, "layer_types": ["hybrid", "hybrid_sliding"]},
}
"""Model type -> fields that the rules would get wrong."""

_SOUND, _DRAFTER = "it writes codes of sound, several at a time", "a drafter, which has no keys and values of its own"
IMPOSSIBLE = {
    "gemma4_assistant": _DRAFTER,
    "gemma4_unified_assistant": _DRAFTER,
    "musicgen": _SOUND,
    "musicgen_melody": _SOUND,
}
"""Model type -> why no configuration makes it a language model."""


def model_types() -> list[str]:
    """Return every type that is tried, in the order of the alphabet."""
    return sorted({*MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *TYPES})


def configuration(model_type: str) -> PreTrainedConfig:
    """Return the small configuration of a type. Raises whatever its class does for one that it does not take."""
    return CONFIG_MAPPING[model_type](**small(CONFIG_MAPPING[model_type]))


def small(config: type[PreTrainedConfig]) -> dict[str, Any]:
    """Return the fields of a small one that are not as the class sets them."""
    usual, declared = config(), config.__dataclass_fields__
    fields = {name: SIZES[name] for name in declared if name in SIZES}
    if "kv_lora_rank" in declared:  # each head has keys of its own
        fields["num_key_value_heads"] = SIZES["num_attention_heads"]
    for name in config.sub_configs:
        if isinstance(part := getattr(usual, name, None), PreTrainedConfig):
            fields[name] = {"model_type": part.model_type} | small(type(part))
    return _merged(fields | _layers(usual, declared), CORRECTIONS.get(config.model_type, {}))


def _merged(fields: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Merge fields over others, and so in the parts."""
    parts = {
        name: _merged(part, more[name])
        for name, part in fields.items()
        if isinstance(part, dict) and isinstance(more.get(name), dict)
    }
    return fields | more | parts


def _layers(usual: PreTrainedConfig, declared: Container[str]) -> dict[str, Any]:
    """Return as many layers as the class has kinds of them: one of each, or where the config derives their kinds from
    other fields, all up to the first of the last kind. Nothing where it has one kind, or says nothing."""
    lists = {name: list(value) for name in KINDS if isinstance(value := getattr(usual, name, None), (list, tuple))}
    layers = list(zip(*lists.values(), strict=False))
    distinct = list(dict.fromkeys(layers))
    if len(distinct) < 2:
        return {}
    given = {name for name in lists if name in declared}
    if given != {*lists}:
        return dict.fromkeys(set(LAYERS) & set(declared), max(map(layers.index, distinct)) + 1)
    kinds = dict(zip(lists, map(list, zip(*distinct, strict=True)), strict=True))
    return kinds | dict.fromkeys(set(LAYERS) & set(declared), len(distinct))
