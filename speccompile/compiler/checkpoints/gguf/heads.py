"""Heads of drafters in GGUF files: config.json and tensors, with the names of the folders that heads are published in.

Keys and tensors: conversion/llama.py (EAGLE-3), conversion/qwen.py (DFlash), src/models/eagle3.cpp and dflash.cpp of
llama.cpp. A head reads what enters the target's layers `target_layers`, in the order of the file.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from speccompile.compiler.checkpoints.gguf.architectures import HEADS
from speccompile.compiler.checkpoints.gguf.metadata import Metadata
from speccompile.compiler.checkpoints.gguf.model import TYPE, GgufPart
from speccompile.compiler.checkpoints.gguf.reader import GgufTensor
from speccompile.compiler.checkpoints.gguf.rope import FACTORS, read_rope
from speccompile.errors import UnsupportedModelError

Config = dict[str, Any]

FACTORS_OF_LAYER = f"blk.0.{FACTORS}"
"""Another name of the factors of frequencies, which a head has for its one layer."""
MARKOV, CONFIDENCE = "markov_w1.weight", "conf_proj.weight"
_MOST_TOKENS = 2**31


class GgufHead(GgufPart):
    """The head of a drafter. Raise UnsupportedModelError for a file of another `general.type`."""

    def __init__(self, metadata: Metadata, tensors: Mapping[str, tuple[Path, GgufTensor]]) -> None:
        renamed = {} if FACTORS in tensors else {FACTORS_OF_LAYER: FACTORS}
        super().__init__(metadata, {renamed.get(name, name): each for name, each in tensors.items()})
        self.row = HEADS[self.name]
        if not self.has_model_type:
            raise UnsupportedModelError(
                f"{metadata.path}: received {TYPE} {metadata.optional(TYPE)!r}, expected the head of a drafter",
                hint="use the head's safetensors",
            )


def make_head_config(head: GgufHead) -> Config:
    """Return config.json of a head, whose architecture is that of the file. Raise as `make_config` does."""
    metadata, key = head.metadata, head.key
    hidden, heads = metadata.count(key("embedding_length")), metadata.count(key("attention.head_count"))
    size = metadata.count(key("attention.key_length"), metadata.count(key("rope.dimension_count"), hidden // heads))
    metadata.require(key("attention.value_length"), size)
    if size % 2:
        raise metadata.wrong(key("attention.key_length"), size, "an even number")
    config: Config = {
        "architectures": [head.name],
        "hidden_size": hidden,
        "intermediate_size": metadata.count(key("feed_forward_length")),
        "num_hidden_layers": metadata.count(key("block_count")),
        "num_attention_heads": heads,
        "num_key_value_heads": metadata.count(key("attention.head_count_kv"), heads),
        "head_dim": size,
        "rms_norm_eps": metadata.number(key("attention.layer_norm_rms_epsilon")),
        "max_position_embeddings": metadata.count(key("context_length")),
        "rope_parameters": read_rope(head, size),
    }
    if key("vocab_size") in metadata:
        config["vocab_size"] = metadata.count(key("vocab_size"))
    _OWN[head.name](head, config)
    metadata.claim_tokenizer()  # the target's
    return config


def _target_layers(head: GgufHead, name: str = "target_layers") -> list[int]:
    """Return the boundaries between layers that the head reads: b is before layer b."""
    found = head.metadata.items(head.key(name), int)
    if not found or min(found) < 0:
        raise head.metadata.wrong(head.key(name), found, "the target's layers whose inputs the head reads")
    return found


def _eagle3(head: GgufHead, config: Config) -> None:
    metadata, key = head.metadata, head.key
    metadata.require(key("block_count"), 1)
    metadata.require(key("attention.causal"), True)
    older = "extract_layers"  # before the key was that of dflash as well
    config |= {
        "target_hidden_size": metadata.count(key("target_hidden_size")),
        "eagle_aux_hidden_state_layer_ids": _target_layers(head, older if key(older) in metadata else "target_layers"),
        "norm_before_residual": metadata.flag(key("norm_before_residual"), False),
        "norm_before_fc": metadata.flag(key("norm_before_fc"), False),
    }


def _dflash(head: GgufHead, config: Config) -> None:
    metadata, key = head.metadata, head.key
    metadata.require(key("attention.causal"), False)
    mask = metadata.id("tokenizer.ggml.mask_token_id", config.get("vocab_size", _MOST_TOKENS))
    if mask is None:
        raise metadata.wrong("tokenizer.ggml.mask_token_id", None, "the token that stands for those to draft")
    config |= {
        "block_size": metadata.count(key("block_size")),
        "mask_token_id": mask,
        "target_layer_ids": [each - 1 for each in _target_layers(head)],  # layers whose outputs are read
        "is_causal": False,
        "sample_from_anchor": metadata.flag(key("sample_from_anchor"), MARKOV in head.tensors),
    }
    for name, own in (("logit_scale", "output_multiplier"), ("final_logit_softcapping", "final_logit_softcapping")):
        if metadata.number(key(name), 0.0):
            config[own] = metadata.number(key(name))
    for name in ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k"):
        if key(name) in metadata:
            config[name] = metadata.count(key(name))
    if MARKOV in head.tensors:
        has_confidence = CONFIDENCE in head.tensors
        config |= {
            "markov_rank": head.tensor(MARKOV).shape[-1], "markov_head_type": "vanilla",
            "enable_confidence_head": has_confidence, "confidence_head_with_markov": has_confidence,
        }  # fmt: skip
    _add_windows(head, config)
    _check_sections(head, config)


def _add_windows(head: GgufHead, config: Config) -> None:
    """Add the sliding window of the layers that the pattern names; as llama.cpp, none without a window."""
    metadata, name = head.metadata, head.key("attention.sliding_window")
    if not metadata.whole(name, 0):
        metadata.claim([f"{name}_pattern"])
        return
    pattern = metadata.items(f"{name}_pattern", bool, config["num_hidden_layers"], "layer")
    if pattern is None:
        raise metadata.wrong(f"{name}_pattern", None, f"true or false for each layer, beside {name}")
    kinds = {True: "sliding_attention", False: "full_attention"}
    config |= {"sliding_window": metadata.count(name), "layer_types": [kinds[each] for each in pattern]}


def _check_sections(head: GgufHead, config: Config) -> None:
    """Raise CheckpointError for sections of a head's frequencies: those of a target with images name one axis alone."""
    name, size = head.key("rope.dimension_sections"), config["head_dim"]
    sections = head.metadata.items(name, int)
    if sections and (2 * sections[0] != size or any(sections[1:])):
        raise head.metadata.wrong(name, sections, f"{[size // 2, 0, 0, 0]}: a head counts positions of the text alone")


_OWN: dict[str, Callable[[GgufHead, Config], None]] = {"eagle3": _eagle3, "dflash": _dflash}
