"""config.json and generation_config.json of a GGUF file, by the names of transformers' own config classes."""

from collections.abc import Callable
from typing import Any

from speccompile.compiler.checkpoints.gguf.model import GgufModel
from speccompile.compiler.checkpoints.gguf.rope import read_rope
from speccompile.errors import UnsupportedModelError

HEAD = "output.weight"

MTP_LAYERS = "nextn_predict_layers"
Config = dict[str, Any]

WITHOUT_EFFECT = ("rope.scaling.finetuned",)
"""Keys of an architecture that no computation reads."""


def make_config(model: GgufModel) -> Config:
    """Return config.json. Raise CheckpointError for keys that are missing or contradict tensors, UnsupportedModelError
    for those that change the model in a way that is not read."""
    metadata, key = model.metadata, model.key
    metadata.require(key("vocab_size"), model.vocabulary_size)
    metadata.require(key("embedding_length"), model.table.shape[1])
    metadata.require(key("attention.causal"), True)
    metadata.claim(map(key, WITHOUT_EFFECT))
    heads = metadata.count(key("attention.head_count"))
    layers = metadata.count(key("block_count"))
    ahead = metadata.whole(key(MTP_LAYERS), 0) if model.row.mtp else 0
    if ahead >= layers:
        raise metadata.wrong(key(MTP_LAYERS), ahead, f"fewer than the {layers} layers of {key('block_count')}")
    config: Config = {
        "architectures": [model.row.class_name],
        "model_type": model.row.model_type,
        "vocab_size": model.vocabulary_size,
        "hidden_size": model.table.shape[1],
        "num_hidden_layers": layers - ahead,
        "num_attention_heads": heads,
        "num_key_value_heads": _key_value_heads(model, heads),
        "rms_norm_eps": metadata.number(key("attention.layer_norm_rms_epsilon")),
        "max_position_embeddings": metadata.count(key("context_length")),
        "tie_word_embeddings": HEAD not in model.tensors,
    }
    if ahead:
        config["mtp_num_hidden_layers"] = ahead
    config["head_dim"] = _head_size(model, config)
    _OWN[model.name](model, config)
    if "intermediate_size" not in config:
        config["intermediate_size"] = metadata.count(key("feed_forward_length"))
    return config | _special_tokens(model)


def generation_config(model: GgufModel) -> Config:
    """Return generation_config.json: all tokens that end a text."""
    metadata, size = model.metadata, model.vocabulary_size
    ends = [metadata.id(f"tokenizer.ggml.{name}_token_id", size) for name in ("eos", "eot", "eom")]
    found = list(dict.fromkeys(each for each in ends if each is not None))
    return {"eos_token_id": found} if found else {}


def _special_tokens(model: GgufModel) -> Config:
    names = {"bos": "bos", "eos": "eos", "pad": "padding"}
    return {
        f"{own}_token_id": model.metadata.id(f"tokenizer.ggml.{name}_token_id", model.vocabulary_size)
        for own, name in names.items()
    }


def _key_value_heads(model: GgufModel, heads: int) -> int:
    """Return the heads of keys of all layers, or of those that have any where the model has layers of several kinds."""
    name = model.key("attention.head_count_kv")
    found = model.metadata.optional(name)
    if model.row.kinds and isinstance(found, list):
        counts = {each for each in found if each != 0}
        if len(counts) != 1 or not all(type(each) is int and each > 0 for each in counts):
            raise model.metadata.wrong(name, found, "one number above 0 for each layer that attends, 0 for the others")
        return int(counts.pop())
    return model.metadata.count(name, heads)


def _head_size(model: GgufModel, config: Config) -> int:
    metadata, key = model.metadata, model.key
    default = config["hidden_size"] // config["num_attention_heads"]
    if model.name in ("llama", "qwen3", "qwen3moe") and key("attention.key_length") not in metadata:
        default = metadata.count(key("rope.dimension_count"), default)
    size = metadata.count(key("attention.key_length"), default)
    metadata.require(key("attention.value_length"), size)
    if size % 2:
        raise metadata.wrong(key("attention.key_length"), size, "an even number")
    return size


def _llama(model: GgufModel, config: Config) -> None:
    metadata, key = model.metadata, model.key
    metadata.require(key("expert_count"), 0)
    metadata.require(key("expert_used_count"), 0)
    metadata.require(key("tensor_data_layout"), "Meta AI original pth")
    window = metadata.optional(key("attention.sliding_window"))
    config["rope_parameters"] = read_rope(model, config["head_dim"])
    has_biases = "blk.0.attn_q.bias" in model.tensors
    if window:
        metadata.count(key("attention.sliding_window"))
        config |= {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": window}
        if has_biases:
            raise UnsupportedModelError(
                f"{metadata.path}: received biases of attention beside {key('attention.sliding_window')}, expected one "
                "of both",
                hint="transformers has no such model; use the model's safetensors",
            )
    elif has_biases:
        config["attention_bias"] = True
    elif config["hidden_size"] % config["num_attention_heads"]:  # a Mistral: a Llama of transformers has equal parts
        config |= {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": None}


def _qwen2(model: GgufModel, config: Config) -> None:
    if config["head_dim"] * config["num_attention_heads"] == config["hidden_size"]:
        del config["head_dim"]  # as its own configs are
    config["rope_parameters"] = read_rope(model, config["hidden_size"] // config["num_attention_heads"])


def _qwen3(model: GgufModel, config: Config) -> None:
    config["rope_parameters"] = read_rope(model, config["head_dim"])


def _qwen3_moe(model: GgufModel, config: Config) -> None:
    metadata, key = model.metadata, model.key
    metadata.require(key("expert_shared_count"), 0)
    metadata.require(key("expert_weights_norm"), True)
    metadata.require(key("expert_gating_func"), 1)
    inner = metadata.count(key("expert_feed_forward_length"))
    config |= {
        "rope_parameters": read_rope(model, config["head_dim"]),
        "num_experts": metadata.count(key("expert_count")),
        "num_experts_per_tok": metadata.count(key("expert_used_count")),
        "moe_intermediate_size": inner,
        "intermediate_size": metadata.count(key("feed_forward_length"), inner),
        "norm_topk_prob": True,  # llama.cpp always does it: models/qwen3moe.cpp
    }


def _gpt_oss(model: GgufModel, config: Config) -> None:
    metadata, key = model.metadata, model.key
    inner = metadata.count(key("expert_feed_forward_length"))
    metadata.require(key("feed_forward_length"), inner)
    rope = read_rope(model, config["head_dim"], theta=150000.0)
    if rope["rope_type"] == "yarn":  # as in the models' own config; no file has these
        rope |= {"beta_fast": 32.0, "beta_slow": 1.0, "truncate": False}
    config |= {
        "rope_parameters": rope,
        "num_local_experts": metadata.count(key("expert_count")),
        "num_experts_per_tok": metadata.count(key("expert_used_count")),
        "intermediate_size": inner,
        "sliding_window": metadata.count(key("attention.sliding_window")),
    }


def _gemma2(model: GgufModel, config: Config) -> None:
    metadata, key = model.metadata, model.key
    config |= {
        "rope_parameters": read_rope(model, config["head_dim"]),
        "sliding_window": metadata.count(key("attention.sliding_window"), 4096),
        "attn_logit_softcapping": metadata.number(key("attn_logit_softcapping"), 50.0),
        "final_logit_softcapping": metadata.number(key("final_logit_softcapping"), 30.0),
        "query_pre_attn_scalar": _query_scalar(config, layers_of_largest=46),
    }


def _gemma3(model: GgufModel, config: Config) -> None:
    metadata, key = model.metadata, model.key
    metadata.require(key("attention.sliding_window_pattern"), 6)
    local = metadata.number(key("rope.freq_base_swa"), 10000.0)
    metadata.require(key("final_logit_softcapping"), 0.0)
    config |= {
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": local},
            "full_attention": read_rope(model, config["head_dim"], theta=1e6),
        },
        "sliding_window": metadata.count(key("attention.sliding_window")),
        "query_pre_attn_scalar": _query_scalar(config, layers_of_largest=62),
    }


def _query_scalar(config: Config, layers_of_largest: int) -> int:
    """Return the number whose root divides the scores. The file does not say it: as llama.cpp, take the model of 27 B
    by its number of layers, which divides by the width of a head of equal parts (models/gemma2.cpp, gemma3.cpp)."""
    is_largest = config["num_hidden_layers"] == layers_of_largest
    return int(config["hidden_size"] // config["num_attention_heads"] if is_largest else config["head_dim"])


def _lfm2(model: GgufModel, config: Config) -> None:
    metadata, key = model.metadata, model.key
    name = key("attention.head_count_kv")
    counts = metadata.items(name, int, config["num_hidden_layers"], "layer")
    if counts is None:
        raise metadata.wrong(name, None, "a list with 0 for each layer of a convolution")
    if config.pop("head_dim") * config["num_attention_heads"] != config["hidden_size"]:
        raise metadata.wrong(key("attention.key_length"), metadata.optional(key("attention.key_length")), "equal parts")
    biased = next((each for each in model.tensors if ".shortconv." in each and each.endswith(".bias")), None)
    if biased is not None:
        raise UnsupportedModelError(
            f"{metadata.path}: received tensor '{biased}', expected convolutions without a bias",
            hint="use the model's safetensors",
        )
    config |= {
        "norm_eps": config.pop("rms_norm_eps"),
        "conv_L_cache": metadata.count(key("shortconv.l_cache")),
        "conv_bias": False,
        "block_auto_adjust_ff_dim": False,  # the file has the adjusted width
        "layer_types": ["full_attention" if each else "conv" for each in counts],
        "rope_parameters": read_rope(model, config["hidden_size"] // config["num_attention_heads"], theta=1e6),
    }


def _qwen35(model: GgufModel, config: Config) -> None:
    metadata, key = model.metadata, model.key
    values, size = metadata.count(key("ssm.time_step_rank")), metadata.count(key("ssm.inner_size"))
    keys = metadata.count(key("ssm.group_count"))
    if size % values or values % keys:
        raise metadata.wrong(key("ssm.inner_size"), size, f"a multiple of {values} heads, in {keys} groups of one size")
    rotated = metadata.count(key("rope.dimension_count"), config["head_dim"])
    sections = metadata.items(key("rope.dimension_sections"), int) or []
    used = [each for each in sections if each]
    if used and 2 * sum(used) != rotated:
        raise metadata.wrong(key("rope.dimension_sections"), sections, f"numbers with the sum {rotated // 2}")
    recurrent = _recurrent_layers(model, config["num_hidden_layers"])
    config |= {
        "layer_types": ["linear_attention" if each else "full_attention" for each in recurrent],
        "linear_conv_kernel_dim": metadata.count(key("ssm.conv_kernel")),
        "linear_key_head_dim": metadata.count(key("ssm.state_size")),
        "linear_num_key_heads": keys,
        "linear_num_value_heads": values,
        "linear_value_head_dim": size // values,
        "partial_rotary_factor": rotated / config["head_dim"],
        "rope_parameters": read_rope(model, rotated) | {"partial_rotary_factor": rotated / config["head_dim"]},
    }
    if used:
        config["rope_parameters"] |= {"mrope_section": used, "mrope_interleaved": True}


def _recurrent_layers(model: GgufModel, layers: int) -> list[bool]:
    """Return for each layer whether it is recurrent: as a list of newer files says, or all but every n-th one."""
    metadata, key = model.metadata, model.key
    every = metadata.count(key("full_attention_interval"), 4)
    if layers > len(model.tensors):
        raise metadata.wrong(key("block_count"), layers, f"at most one layer for each of {len(model.tensors)} tensors")
    name, blocks = key("attention.recurrent_layers"), metadata.count(key("block_count"))
    found = metadata.items(name, bool, blocks, "layer")
    if found is None:
        return [(each + 1) % every != 0 for each in range(layers)]
    if any(found[layers:]):
        raise metadata.wrong(name, found, "no recurrent layer of multi-token prediction")
    return found[:layers]


def _phi3(model: GgufModel, config: Config) -> None:
    metadata, key = model.metadata, model.key
    size = config["hidden_size"] // config["num_attention_heads"]
    metadata.require(key("attention.key_length"), size)
    del config["head_dim"]
    rotated = metadata.count(key("rope.dimension_count"), size)
    config["partial_rotary_factor"] = rotated / size
    config["rope_parameters"] = read_rope(model, rotated) | {"partial_rotary_factor": rotated / size}
    original = config["rope_parameters"].get("original_max_position_embeddings", config["max_position_embeddings"])
    metadata.require(key("rope.scaling.original_context_length"), original)
    config["original_max_position_embeddings"] = original
    window = metadata.optional(key("attention.sliding_window"))
    config["sliding_window"] = metadata.count(key("attention.sliding_window")) if window else None


_OWN: dict[str, Callable[[GgufModel, Config], None]] = {
    "llama": _llama, "qwen2": _qwen2, "qwen3": _qwen3, "qwen3moe": _qwen3_moe,
    "gpt-oss": _gpt_oss, "gemma2": _gemma2, "gemma3": _gemma3,
    "phi3": _phi3, "lfm2": _lfm2, "qwen35": _qwen35,
}  # fmt: skip
