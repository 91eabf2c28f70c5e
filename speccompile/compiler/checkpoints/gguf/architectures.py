"""Architectures of GGUF files that are read: a row of data for each `general.architecture`.

Names of tensors: gguf-py/gguf/tensor_mapping.py of llama.cpp; changed values: the classes of convert_hf_to_gguf.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass

PLAIN, QUERIES, KEYS, LESS_ONE, EXPERTS = "plain", "queries", "keys", "less one", "experts"
"""Operations that undo the converter: none; rows of queries or keys in halves of their heads again; 1 subtracted; one
tensor for each expert."""

Rule = tuple[str, str]
"""Name in transformers, and what undoes the converter."""


@dataclass(frozen=True)
class Architecture:
    """An architecture. model_type, class_name: of transformers. layer, ends: name of a tensor, without `blk.N.` for a
    layer -> its rule. optional: suffixes of layers' tensors that some models lack: all layers have them or none.
    """

    model_type: str
    class_name: str
    layer: Mapping[str, Rule]
    ends: Mapping[str, Rule]
    optional: frozenset[str] = frozenset()


def _norm(name: str, rule: str = PLAIN) -> dict[str, Rule]:
    return {"attn_norm.weight": ("input_layernorm.weight", rule), "ffn_norm.weight": (name, rule)}


def _attention(queries: str = PLAIN, keys: str = PLAIN) -> dict[str, Rule]:
    rules = {"q": queries, "k": keys, "v": PLAIN, "output": PLAIN}
    names = {"q": "q", "k": "k", "v": "v", "output": "o"}
    return {
        f"attn_{own}.{end}": (f"self_attn.{names[own]}_proj.{end}", rule)
        for own, rule in rules.items()
        for end in ("weight", "bias")
    }


_MLP: dict[str, Rule] = {
    f"ffn_{own}.weight": (f"mlp.{own}_proj.weight", PLAIN) for own in ("gate", "up", "down")
}  # fmt: skip
_EXPERTS: dict[str, Rule] = {
    f"ffn_{own}_exps.weight": (f"mlp.experts.{{}}.{own}_proj.weight", EXPERTS) for own in ("gate", "up", "down")
} | {"ffn_gate_inp.weight": ("mlp.gate.weight", PLAIN)}
_GPT_OSS: dict[str, Rule] = {
    "attn_norm.weight": ("input_layernorm.weight", PLAIN),
    "post_attention_norm.weight": ("post_attention_layernorm.weight", PLAIN),
    "attn_sinks.weight": ("self_attn.sinks", PLAIN),
    "ffn_gate_inp.weight": ("mlp.router.weight", PLAIN),
    "ffn_gate_inp.bias": ("mlp.router.bias", PLAIN),
} | {
    f"ffn_{own}_exps.{end}": (f"mlp.experts.{own}_proj{'_bias' if end == 'bias' else ''}", PLAIN)
    for own in ("gate", "up", "down")
    for end in ("weight", "bias")
}
"""Experts as the file has them: `speccompile.compiler.weights.gguf.sources` joins gate and up as transformers does."""
_HEAD_NORMS: dict[str, Rule] = {
    f"attn_{own}_norm.weight": (f"self_attn.{own}_norm.weight", PLAIN) for own in ("q", "k")
}  # fmt: skip
_ENDS: dict[str, Rule] = {
    "token_embd.weight": ("model.embed_tokens.weight", PLAIN),
    "output_norm.weight": ("model.norm.weight", PLAIN),
    "output.weight": ("lm_head.weight", PLAIN),
}
_LLAMA = _norm("post_attention_layernorm.weight")
_GEMMA = _norm("pre_feedforward_layernorm.weight", LESS_ONE) | {
    "post_attention_norm.weight": ("post_attention_layernorm.weight", LESS_ONE),
    "post_ffw_norm.weight": ("post_feedforward_layernorm.weight", LESS_ONE),
}
_GEMMA_ENDS = _ENDS | {"output_norm.weight": ("model.norm.weight", LESS_ONE)}

_BIASES = frozenset(f"attn_{own}.bias" for own in ("q", "k", "v", "output"))


def _without_biases(rules: Mapping[str, Rule], *kept: str) -> dict[str, Rule]:
    return {name: rule for name, rule in rules.items() if name not in _BIASES or name in kept}


_PLAIN_ATTENTION = _without_biases(_attention())

ARCHITECTURES = {
    "llama": Architecture(
        "llama", "LlamaForCausalLM", _LLAMA | _attention(QUERIES, KEYS) | _MLP, _ENDS, _BIASES
    ),
    "qwen2": Architecture(
        "qwen2", "Qwen2ForCausalLM",
        _LLAMA | _without_biases(_attention(), "attn_q.bias", "attn_k.bias", "attn_v.bias") | _MLP, _ENDS,
    ),
    "qwen3": Architecture("qwen3", "Qwen3ForCausalLM", _LLAMA | _PLAIN_ATTENTION | _HEAD_NORMS | _MLP, _ENDS),
    "qwen3moe": Architecture(
        "qwen3_moe", "Qwen3MoeForCausalLM", _LLAMA | _PLAIN_ATTENTION | _HEAD_NORMS | _EXPERTS, _ENDS
    ),
    "gpt-oss": Architecture("gpt_oss", "GptOssForCausalLM", _GPT_OSS | _attention(), _ENDS),
    "gemma2": Architecture("gemma2", "Gemma2ForCausalLM", _GEMMA | _PLAIN_ATTENTION | _MLP, _GEMMA_ENDS),
    "gemma3": Architecture(
        "gemma3_text", "Gemma3ForCausalLM",
        _GEMMA | _PLAIN_ATTENTION | _MLP | {name: (own, LESS_ONE) for name, (own, _) in _HEAD_NORMS.items()},
        _GEMMA_ENDS,
    ),
    "phi3": Architecture(
        "phi3", "Phi3ForCausalLM",
        _LLAMA | {
            "attn_qkv.weight": ("self_attn.qkv_proj.weight", PLAIN),
            "attn_output.weight": ("self_attn.o_proj.weight", PLAIN),
            "ffn_up.weight": ("mlp.gate_up_proj.weight", PLAIN), "ffn_down.weight": ("mlp.down_proj.weight", PLAIN),
        }, _ENDS,
    ),
}  # fmt: skip
"""`general.architecture` -> row."""
