"""Heads of drafters in GGUF files, in the layout of llama.cpp's converter, from folders as publishers write them."""

import json
from pathlib import Path

import gguf
import numpy as np
from gguf.quants import dequantize, quantize
from safetensors.torch import load_file

from tests.gguf_writer import write_parts

ENDS = {"fc.weight": "fc.weight", "norm.weight": "output_norm.weight", "lm_head.weight": "output.weight",
        "embed_tokens.weight": "token_embd.weight", "input_norm.weight": "enc.output_norm.weight",
        "hidden_norm.weight": "enc.output_norm.weight", "markov_head.markov_w1.weight": "markov_w1.weight",
        "markov_head.markov_w2.weight": "markov_w2.weight", "confidence_head.proj.weight": "conf_proj.weight",
        "confidence_head.proj.bias": "conf_proj.bias",
        "candidate_selector.predecessor_codebook": "selector_predecessor.weight",
        "candidate_selector.successor_codebook": "selector_successor.weight",
        "candidate_selector.hidden_projection.weight": "selector_hidden.weight"}  # fmt: skip
# fmt: off
LAYER = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
         "input_layernorm": "attn_norm", "hidden_norm": "attn_norm_2", "post_attention_layernorm": "ffn_norm",
         "attention_conv.kernel_projection": "attn_conv_proj", "mlp_conv.kernel_projection": "ffn_conv_proj"}
# fmt: on
BASES = {"attention_conv.base_kernel": "attn_conv_base", "mlp_conv.base_kernel": "ffn_conv_base"}


def write_head(folder, file, architecture, kind="F32", *, keys=(), without=(), tensors=()):
    """Write the head in a folder. kind: of its matrices. keys: (name, method of the writer, value) beside and over
    those of the converter. without: keys and tensors to leave out. tensors: name -> array beside the head's. Return the
    head's tensors by published names, float32, as a reader must see them."""
    config = json.loads((Path(folder) / "config.json").read_text())
    writer = gguf.GGUFWriter(file, architecture)
    own = {name: (method, value) for name, method, value in [*_keys(config, architecture), *keys]}
    for name, (method, value) in own.items():
        if name not in without:
            key = name if name.startswith(("tokenizer.", "general.")) else f"{architecture}.{name}"
            getattr(writer, f"add_{method}")(key, value)
    stored = {}
    for name, tensor in load_file(Path(folder) / "model.safetensors").items():
        found = _own_name(name)
        if found is not None and found not in without:
            stored[name] = _write(writer, found, tensor.numpy(), kind, config if architecture == "eagle3" else None)
    for name, array in dict(tensors).items():
        writer.add_tensor(name, array)
    write_parts(writer)
    return stored


def _keys(config, architecture):
    yield from (("general.type", "string", "model"), ("tokenizer.ggml.model", "string", "none"))
    for name, own in (("block_count", "num_hidden_layers"), ("context_length", "max_position_embeddings"),
                      ("embedding_length", "hidden_size"), ("feed_forward_length", "intermediate_size"),
                      ("attention.head_count", "num_attention_heads"),
                      ("attention.head_count_kv", "num_key_value_heads"), ("attention.key_length", "head_dim"),
                      ("attention.value_length", "head_dim"), ("vocab_size", "vocab_size")):  # fmt: skip
        yield name, "uint32", config[own]
    yield "attention.layer_norm_rms_epsilon", "float32", config["rms_norm_eps"]
    yield "rope.freq_base", "float32", config["rope_theta"]
    if architecture == "eagle3":
        yield from _of_eagle3(config)
        return
    said = config | config.get("dflash_config", {})
    yield "attention.causal", "bool", False
    yield "block_size", "uint32", said["block_size"]
    yield "tokenizer.ggml.mask_token_id", "uint32", said["mask_token_id"]
    yield "target_layers", "array", [each + 1 for each in said["target_layer_ids"]]
    for name in ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k"):
        if name in said:
            yield name, "uint32", said[name]


def _of_eagle3(config):
    yield "rope.dimension_count", "uint32", config["head_dim"]
    yield "target_hidden_size", "uint32", config.get("target_hidden_size", config["hidden_size"])
    below = config["eagle_config"]["eagle_aux_hidden_state_layer_ids"]
    yield "target_layers", "array", [each + 1 for each in below]
    for name in ("norm_before_residual", "norm_before_fc"):
        yield name, "bool", config.get(name, False)


def _own_name(name):
    name = name.replace("midlayer.", "layers.0.")
    if not name.startswith("layers."):
        return None if name == "t2d" else ENDS.get(name, name)
    _, index, part = name.split(".", 2)
    module, _, end = part.rpartition(".")
    return f"blk.{index}.{BASES[part] if part in BASES else f'{LAYER[module]}.{end}'}"


def _write(writer, name, weight, kind, config):
    if name == "d2t":
        writer.add_tensor(name, weight + np.arange(len(weight)), raw_dtype=gguf.GGMLQuantizationType.I64)
        return weight
    kind = gguf.GGMLQuantizationType[kind if weight.ndim == 2 and weight.shape[-1] % 32 == 0 else "F32"]
    blocks = quantize(weight, kind)
    heads = (
        {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}.get(name.split(".")[-2]) if config else None
    )
    data = blocks
    if heads:
        pairs = blocks.reshape(config[heads], 2, -1, *blocks.shape[1:])
        data = np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(blocks.shape))
    writer.add_tensor(name, data, raw_dtype=kind)
    return dequantize(blocks, kind).reshape(weight.shape)
