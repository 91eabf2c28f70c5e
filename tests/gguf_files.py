"""GGUF files of small models, in the layout of llama.cpp's converter, written with the package gguf."""

import json
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf.quants import dequantize, quantize
from safetensors.torch import load_file, save_file
from transformers import CONFIG_MAPPING, AutoConfig, AutoModelForCausalLM

from speccompile.recipe.gguf import gguf_folder
from tests.gguf_writer import write_parts
from tests.heads.mtp import mtp_target

PARTS = {"llama": gguf.MODEL_ARCH.LLAMA, "mistral": gguf.MODEL_ARCH.LLAMA, "qwen2": gguf.MODEL_ARCH.QWEN2,
         "qwen3": gguf.MODEL_ARCH.QWEN3, "qwen3_moe": gguf.MODEL_ARCH.QWEN3MOE, "gemma2": gguf.MODEL_ARCH.GEMMA2,
         "gemma3_text": gguf.MODEL_ARCH.GEMMA3,
         "gpt_oss": gguf.MODEL_ARCH.GPT_OSS, "phi3": gguf.MODEL_ARCH.PHI3, "lfm2": gguf.MODEL_ARCH.LFM2,
         "qwen3_5_text": gguf.MODEL_ARCH.QWEN35}  # fmt: skip
"""model_type -> architecture of a file."""

SIZES = {"vocab_size": 96, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
         "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}  # fmt: skip
LINEAR = {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}
OSS = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 150000.0, "original_max_position_embeddings": 32,
       "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e6, "original_max_position_embeddings": 32}
PARTIAL = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.75}
SECTIONS = {"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.25, "mrope_section": [2, 1, 1],
            "mrope_interleaved": True}  # fmt: skip
QWEN35 = {"num_hidden_layers": 4, "head_dim": 32, "linear_num_key_heads": 2, "linear_num_value_heads": 6,
          "linear_key_head_dim": 16, "linear_value_head_dim": 32, "linear_conv_kernel_dim": 4,
          "rope_parameters": SECTIONS}  # fmt: skip
MODELS = {
    "llama": {"tie_word_embeddings": False},
    "llama with biases": {"attention_bias": True, "head_dim": 32, "tie_word_embeddings": True},
    "mistral": {"sliding_window": 16, "head_dim": 16},
    "qwen2": {"tie_word_embeddings": True, "rope_parameters": LINEAR},
    "qwen3": {"head_dim": 32, "rope_parameters": YARN},
    "qwen3_moe": {"head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
                  "norm_topk_prob": True},
    "gpt_oss": {"head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 32,
                "sliding_window": 16, "rope_parameters": OSS},
    "gemma2": {"head_dim": 32, "sliding_window": 16, "query_pre_attn_scalar": 32},
    "gemma3_text": {"num_hidden_layers": 7, "head_dim": 32, "sliding_window": 16, "query_pre_attn_scalar": 32},
    "phi3": {"original_max_position_embeddings": 128, "rope_parameters": PARTIAL},
    "lfm2": {"num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"], "conv_L_cache": 3,
             "block_auto_adjust_ff_dim": False},
    "qwen3_5_text": QWEN35,
    "qwen3_5_text with equal heads": QWEN35 | {"linear_num_value_heads": 2, "tie_word_embeddings": True},
}  # fmt: skip
"""Name, which begins with the model_type -> changes of its config."""


def save(folder, kind, **changes):
    """Save a random model of transformers."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind](**(SIZES | changes)))
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    return folder


def write_gguf(folder, file, types=("F32",), tokenizer=None, keys=(), tensors=(), split=0, rope_freqs=None, gates=None):
    """Write the model in a Hugging Face folder as GGUF. types: of its matrices, in turn. tokenizer: called with the
    writer. keys: (method of the writer, value) beside those of the converter. tensors: name -> array beside the
    model's. gates: type of the gates of experts. Return its tensors, by transformers' names, as a reader must see them:
    float32, after quantization."""
    config = AutoConfig.from_pretrained(folder)
    arch = PARTS[config.model_type]
    writer = gguf.GGUFWriter(None if split else file, gguf.MODEL_ARCH_NAMES[arch], split_max_tensors=split)
    _add_keys(writer, config)
    for method, value in keys:
        getattr(writer, method)(value)
    (tokenizer or (lambda writer: writer.add_tokenizer_model("none")))(writer)
    stored = _tensors(folder)
    _write_tensors(writer, arch, config, stored, types, dict(tensors), gates)
    if rope_freqs is not None:
        writer.add_tensor("rope_freqs.weight", np.asarray(rope_freqs, np.float32))
    write_parts(writer, Path(file))
    return stored


def describe(folder, file, **options):
    """Write a folder's model as GGUF. Return the folder that describes it, and its weights."""
    stored = write_gguf(folder, file, **options)
    return gguf_folder(file), stored


def _tensors(folder):
    return {name: tensor.float().numpy() for file in sorted(Path(folder).glob("*.safetensors"))
            for name, tensor in load_file(file).items()}  # fmt: skip


def _add_keys(writer, config):
    rope = config.rope_parameters
    rope = rope.get("full_attention", rope)
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    ahead = getattr(config, "mtp_num_hidden_layers", 0)
    writer.add_block_count(config.num_hidden_layers + ahead)
    if ahead:
        writer.add_nextn_predict_layers(ahead)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    kind = config.model_type
    writer.add_head_count_kv(_key_value_heads(config))
    writer.add_layer_norm_rms_eps(config.norm_eps if kind == "lfm2" else config.rms_norm_eps)
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    writer.add_file_type(0)
    if kind in ("llama", "mistral"):
        writer.add_rope_dimension_count(head)
    if kind not in ("phi3", "lfm2"):
        writer.add_key_length(head)
        writer.add_value_length(head)
    elif kind == "phi3":
        writer.add_rope_dimension_count(int(head * rope.get("partial_rotary_factor", 1.0)))
        writer.add_rope_scaling_orig_ctx_len(config.original_max_position_embeddings)
    _add_own_keys(writer, config)
    if rope["rope_type"] in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])


def _add_own_keys(writer, config):
    kind = config.model_type
    if kind == "lfm2":
        writer.add_shortconv_l_cache(config.conv_L_cache)
    if kind == "qwen3_5_text":
        _add_qwen35(writer, config)
    if kind == "qwen3_moe":
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    if kind == "gpt_oss":
        writer.add_expert_count(config.num_local_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        writer.add_expert_feed_forward_length(config.intermediate_size)
    if kind == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if kind in ("gemma2", "gemma3_text", "mistral", "phi3", "gpt_oss") and config.sliding_window:
        writer.add_sliding_window(config.sliding_window)


def _key_value_heads(config):
    """Return one number, or one for each layer, 0 for a convolution."""
    if config.model_type != "lfm2":
        return config.num_key_value_heads
    return [config.num_key_value_heads if each == "full_attention" else 0 for each in config.layer_types]


def _add_qwen35(writer, config):
    values = config.linear_num_value_heads
    writer.add_rope_dimension_count(int(config.head_dim * config.rope_parameters["partial_rotary_factor"]))
    writer.add_rope_dimension_sections([*config.rope_parameters["mrope_section"], 0])
    full = config.layer_types.index("full_attention") + 1
    writer.add_full_attention_interval(full)
    writer.add_ssm_conv_kernel(config.linear_conv_kernel_dim)
    writer.add_ssm_inner_size(values * config.linear_value_head_dim)
    writer.add_ssm_state_size(config.linear_key_head_dim)
    writer.add_ssm_time_step_rank(values)
    writer.add_ssm_group_count(config.linear_num_key_heads)


def _write_tensors(writer, arch, config, stored, types, more, gates=None):
    """Write tensors as the converter does, and put into `stored` what they are after quantization."""
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers + 1)
    experts, turn = {}, 0
    for name, weight in stored.items():
        if config.model_type == "gpt_oss" and _write_gpt_oss(writer, stored, name):
            continue
        matrix = weight.ndim == 2 and not name.endswith("mlp.gate.weight")
        kind = gguf.GGMLQuantizationType[types[turn % len(types)] if matrix else "F32"]
        turn += matrix
        if matrix and weight.shape[-1] % gguf.GGML_QUANT_SIZES[kind][0]:
            kind = gguf.GGMLQuantizationType.F16
        if ".experts." in name:
            kind = gguf.GGMLQuantizationType[gates if gates and "gate_proj" in name else types[0]]
        data, stored[name] = _stored(name, weight, kind, config)
        if ".experts." in name:
            before, _, after = name.partition(".experts.")
            index, _, rest = after.partition(".")
            experts.setdefault(f"{before}.experts.{rest}", {})[int(index)] = data, kind
            continue
        found = _own_name(names, name, config.num_hidden_layers)
        writer.add_tensor(found, data, raw_dtype=kind)
    for name, parts in experts.items():
        data = np.stack([parts[index][0] for index in range(len(parts))])
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight",)), data, raw_dtype=parts[0][1])
    for name, array in more.items():
        writer.add_tensor(name, array)


_NEXTN = {"fc": "eh_proj", "pre_fc_norm_embedding": "enorm", "pre_fc_norm_hidden": "hnorm", "norm": "shared_head_norm"}


def _own_name(names, name, layers):
    """Return the name of a tensor in the file. layers: of the model, behind which those of MTP lie."""
    if name.startswith("mtp.") and name.split(".")[1] in _NEXTN:
        return f"blk.{layers}.nextn.{_NEXTN[name.split('.')[1]]}.weight"
    name = name.replace("mtp.layers.0.", f"model.layers.{layers}.").replace("dt_bias", "dt_proj.bias")
    return names.get_name(name, try_suffixes=(".weight", ".bias"))


def _stored(name, weight, kind, config):
    """Return the data of a tensor, and the weight that it stands for."""
    matrix = weight.ndim == 2 and not name.endswith("mlp.gate.weight")
    if name.endswith("linear_attn.out_proj.weight"):
        order = tiled_heads(config)
        data = blocks_of(weight[:, order], kind)
        return data, dequantize(data, kind).reshape(weight.shape)[:, np.argsort(order)]
    blocks = blocks_of(weight, kind)
    data = _as_converted(name, blocks, config) if matrix else quantize(_as_converted(name, weight, config), kind)
    if _adds_one(name, config):
        return data, (weight + np.float32(1)) - np.float32(1)
    if name.endswith("A_log"):
        return data, np.log(np.exp(weight))
    return data, dequantize(blocks, kind).reshape(weight.shape)


_FACTORS = {"Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "IQ4_XS": (0,),
            "IQ4_NL": (0,)}  # fmt: skip
"""Type without a quantizer in Python -> places of float16 factors in its blocks."""


def blocks_of(weight, kind):
    """Return a matrix in blocks, uint8 [rows, bytes]; random ones of small numbers for a type without a quantizer."""
    if kind.name not in _FACTORS:
        return quantize(weight, kind)
    numbers, size = gguf.GGML_QUANT_SIZES[kind]
    random = np.random.default_rng(weight.size)
    blocks = random.integers(0, 256, (weight.size // numbers, size)).astype(np.uint8)
    for place in _FACTORS[kind.name]:
        blocks[:, place : place + 2] = random.uniform(5e-5, 2e-4, (len(blocks), 1)).astype(np.float16).view(np.uint8)
    return blocks.reshape(len(weight), -1)


def _write_gpt_oss(writer, stored, name):
    """Write a tensor of GPT-OSS that its class of convert_hf_to_gguf.py names or splits: experts in MXFP4, the rest in
    F32. Return whether it is one."""
    weight, prefix = stored[name], f"blk.{'.'.join(name.split('.')[2:3])}."
    if name.endswith("post_attention_layernorm.weight"):
        writer.add_tensor(f"{prefix}post_attention_norm.weight", weight)
    elif name.endswith("sinks"):
        writer.add_tensor(f"{prefix}attn_sinks.weight", weight)
    elif ".router." in name:
        writer.add_tensor(f"{prefix}ffn_gate_inp.{name.rpartition('.')[2]}", weight)
    elif ".experts." in name:
        end = "bias" if name.endswith("_bias") else "weight"
        kind = gguf.GGMLQuantizationType["MXFP4" if end == "weight" else "F32"]
        rows = weight if end == "bias" else np.ascontiguousarray(weight.swapaxes(1, 2))
        found = dequantize(quantize(rows, kind), kind).reshape(rows.shape)
        stored[name] = found if end == "bias" else found.swapaxes(1, 2)
        parts = {"gate": rows[:, ::2], "up": rows[:, 1::2]} if "gate_up" in name else {"down": rows}
        for own, part in parts.items():
            data = quantize(np.ascontiguousarray(part), kind)
            writer.add_tensor(f"{prefix}ffn_{own}_exps.{end}", data, raw_dtype=kind)
    else:
        return False
    return True


def _as_converted(name, weight, config):
    """Return a weight as the classes of convert_hf_to_gguf.py change it."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    module = name.split(".")[-2]
    if config.model_type in ("llama", "mistral") and module in heads:
        pairs = weight.reshape(heads[module], 2, -1, *weight.shape[1:])
        return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(weight.shape))
    if _adds_one(name, config):
        return weight + np.float32(1)
    if name.endswith(("conv.weight", "conv1d.weight")):
        weight = weight.squeeze(1)
    if ".linear_attn." in name:
        weight = _tiled(name, -np.exp(weight) if name.endswith("A_log") else weight, config)
    return weight


def _adds_one(name, config):
    is_norm = name.endswith(("norm.weight", "norm_embedding.weight", "norm_hidden.weight"))
    is_norm = is_norm and not name.endswith("linear_attn.norm.weight")
    return is_norm and config.model_type.startswith(("gemma", "qwen3_5"))


def tiled_heads(config, size=None):
    """Return where rows of heads of values, which transformers groups by heads of keys, lie in llama.cpp's file: the
    first head of each group, then the second of each. size: rows of a head."""
    keys, size = config.linear_num_key_heads, size or config.linear_value_head_dim
    return np.arange(config.linear_num_value_heads * size).reshape(keys, -1, size).swapaxes(0, 1).reshape(-1)


def _tiled(name, weight, config):
    """Reorder rows as _LinearAttentionVReorderBase of convert_hf_to_gguf.py does."""
    part = name.split(".linear_attn.")[1]
    if part in ("A_log", "dt_bias", "in_proj_a.weight", "in_proj_b.weight"):
        return weight[tiled_heads(config, 1)]
    if part == "in_proj_z.weight":
        return weight[tiled_heads(config)]
    if part in ("in_proj_qkv.weight", "conv1d.weight"):
        before = 2 * config.linear_num_key_heads * config.linear_key_head_dim
        return np.concatenate([weight[:before], weight[before:][tiled_heads(config)]])
    return weight


def qwen_with_mtp(folder):
    """Save a target with a layer of multi-token prediction. Return its GGUF file, and the weights in it."""
    mtp_target(folder / "model", "qwen3_5", rope_parameters=SECTIONS, head_dim=32)
    return folder / "model.gguf", write_gguf(folder / "model", folder / "model.gguf", ("Q8_0", "F32"))


def save_reference(folder, stored, output):
    """Write a Hugging Face folder with the config of `folder` and these tensors."""
    output.mkdir()
    (output / "config.json").write_bytes((Path(folder) / "config.json").read_bytes())
    tensors = {name: torch.from_numpy(np.ascontiguousarray(each)) for name, each in stored.items()}
    save_file(tensors, output / "model.safetensors", {"format": "pt"})
    return output


def add_byte_level(file, pre, special=()):
    """Return a function that writes the byte-level BPE of a tokenizer.json. special: (method, id)."""
    written = json.loads(Path(file).read_text(encoding="utf-8"))
    added = {each["id"]: each for each in written["added_tokens"]}
    tokens = {index: token for token, index in written["model"]["vocab"].items()}
    tokens |= {index: each["content"] for index, each in added.items()}
    kinds = {index: 3 if each["special"] else 4 for index, each in added.items()}
    merges = [each if isinstance(each, str) else " ".join(each) for each in written["model"]["merges"]]

    def add(writer, size=None):
        count = size or max(tokens) + 1
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(pre)
        writer.add_token_list([tokens.get(index, f"[PAD{index}]") for index in range(count)])
        writer.add_token_types([kinds.get(index, 1 if index in tokens else 5) for index in range(count)])
        writer.add_token_merges(merges)
        for method, value in special:
            getattr(writer, method)(value)

    return add
