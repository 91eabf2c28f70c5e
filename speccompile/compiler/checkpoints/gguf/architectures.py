"""Architectures of GGUF files that are read: a row of data for each `general.architecture`.

Names of tensors: gguf-py/gguf/tensor_mapping.py of llama.cpp; changed values: the classes of convert_hf_to_gguf.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

PLAIN, QUERIES, KEYS, LESS_ONE, EXPERTS = "plain", "queries", "keys", "less one", "experts"
"""Operations that undo the converter: none; rows of queries or keys in halves of their heads again; 1 subtracted; one
tensor for each expert."""
KERNELS = "kernels"
"""Operation on the kernels of a convolution [H, K]: they are [H, 1, K] again."""
VALUES, MIXED, MIXED_KERNELS, VALUE_HEADS, DECAYS, FROM_VALUES = (
    "values", "mixed", "mixed kernels", "value heads", "decays", "from values"
)  # fmt: skip
"""Operations that put heads of values in the order of their heads of keys: rows of heads; the same behind the rows of
queries and keys; the same of kernels; one row a head; the same, of which the logarithm is taken; columns of heads."""
IDS = "ids"
"""Operation on token ids of a draft vocabulary: offsets again, which the id of the draft token is added to."""

Rule = tuple[str, str]
"""Name in transformers, and what undoes the converter."""


@dataclass(frozen=True)
class Architecture:
    """An architecture. model_type, class_name: of transformers. layer, ends: name of a tensor, without `blk.N.` for a
    layer -> its rule. optional: suffixes of layers' tensors that some models lack: all layers have them or none. kinds:
    entry of the config's `layer_types` -> rules of such layers beside `layer`. mtp: kind of the layers of multi-token
    prediction behind the others, and their rules, whose names in transformers are whole; None for an architecture whose
    layers are not read.
    """

    model_type: str
    class_name: str
    layer: Mapping[str, Rule]
    ends: Mapping[str, Rule]
    optional: frozenset[str] = frozenset()
    kinds: Mapping[str, Mapping[str, Rule]] = field(default_factory=dict)
    mtp: tuple[str, Mapping[str, Rule]] | None = None

    def rules(self, kind: str) -> Mapping[str, Rule]:
        """Return the rules of a layer of this type."""
        return {**self.layer, **self.kinds.get(kind, {})}


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

_LFM2: dict[str, Rule] = {
    "attn_norm.weight": ("operator_norm.weight", PLAIN),
    "ffn_norm.weight": ("ffn_norm.weight", PLAIN),
    **{f"ffn_{own}.weight": (f"feed_forward.{name}.weight", PLAIN)
       for own, name in {"gate": "w1", "up": "w3", "down": "w2"}.items()},
}  # fmt: skip
_LFM2_KINDS: dict[str, dict[str, Rule]] = {
    "conv": {
        "shortconv.conv.weight": ("conv.conv.weight", KERNELS),
        "shortconv.in_proj.weight": ("conv.in_proj.weight", PLAIN),
        "shortconv.out_proj.weight": ("conv.out_proj.weight", PLAIN),
    },
    "full_attention": {
        **{f"attn_{own}.weight": (f"self_attn.{own}_proj.weight", PLAIN) for own in "qkv"},
        "attn_output.weight": ("self_attn.out_proj.weight", PLAIN),
        **{f"attn_{own}_norm.weight": (f"self_attn.{own}_layernorm.weight", PLAIN) for own in "qk"},
    },
}
_LFM2_ENDS: dict[str, Rule] = {
    "token_embd.weight": ("model.embed_tokens.weight", PLAIN),
    "token_embd_norm.weight": ("model.embedding_norm.weight", PLAIN),
    "output.weight": ("lm_head.weight", PLAIN),
}
_QWEN35: dict[str, Rule] = {
    "attn_norm.weight": ("input_layernorm.weight", LESS_ONE),
    "post_attention_norm.weight": ("post_attention_layernorm.weight", LESS_ONE),
    **_MLP,
}
_QWEN35_KINDS: dict[str, dict[str, Rule]] = {
    "linear_attention": {
        "attn_qkv.weight": ("linear_attn.in_proj_qkv.weight", MIXED),
        "attn_gate.weight": ("linear_attn.in_proj_z.weight", VALUES),
        "ssm_alpha.weight": ("linear_attn.in_proj_a.weight", VALUE_HEADS),
        "ssm_beta.weight": ("linear_attn.in_proj_b.weight", VALUE_HEADS),
        "ssm_conv1d.weight": ("linear_attn.conv1d.weight", MIXED_KERNELS),
        "ssm_norm.weight": ("linear_attn.norm.weight", PLAIN),
        "ssm_out.weight": ("linear_attn.out_proj.weight", FROM_VALUES),
        "ssm_a": ("linear_attn.A_log", DECAYS),
        "ssm_dt.bias": ("linear_attn.dt_bias", VALUE_HEADS),
    },
    "full_attention": _PLAIN_ATTENTION | {name: (own, LESS_ONE) for name, (own, _) in _HEAD_NORMS.items()},
}
_QWEN35_MTP: dict[str, Rule] = {
    "nextn.eh_proj.weight": ("mtp.fc.weight", PLAIN),
    "nextn.enorm.weight": ("mtp.pre_fc_norm_embedding.weight", LESS_ONE),
    "nextn.hnorm.weight": ("mtp.pre_fc_norm_hidden.weight", LESS_ONE),
    "nextn.shared_head_norm.weight": ("mtp.norm.weight", LESS_ONE),
    "nextn.embed_tokens.weight": ("mtp.embed_tokens.weight", PLAIN),
    "nextn.shared_head_head.weight": ("mtp.lm_head.weight", PLAIN),
}
"""The converter renames these tensors before it adds 1 to those whose names end with norm.weight."""
MTP_OPTIONAL = frozenset({"nextn.embed_tokens.weight", "nextn.shared_head_head.weight"})
"""Tensors of a layer of multi-token prediction that may be the target's own."""

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
    "lfm2": Architecture("lfm2", "Lfm2ForCausalLM", _LFM2, _LFM2_ENDS, kinds=_LFM2_KINDS),
    "qwen35": Architecture(
        "qwen3_5_text", "Qwen3_5ForCausalLM", _QWEN35, _GEMMA_ENDS, kinds=_QWEN35_KINDS,
        mtp=("full_attention", _QWEN35_MTP),
    ),
}  # fmt: skip
"""`general.architecture` -> row."""

_HEAD: dict[str, Rule] = {
    "attn_norm.weight": ("input_layernorm.weight", PLAIN),
    "ffn_norm.weight": ("post_attention_layernorm.weight", PLAIN),
    **_MLP,
}
_HEAD_ENDS: dict[str, Rule] = {
    "token_embd.weight": ("embed_tokens.weight", PLAIN),
    "output_norm.weight": ("norm.weight", PLAIN),
    "output.weight": ("lm_head.weight", PLAIN),
    "fc.weight": ("fc.weight", PLAIN),
    "d2t": ("d2t", IDS),
}
_CONVOLUTIONS: dict[str, Rule] = {
    f"{own}_conv_{end}": (f"{name}_conv.{theirs}", PLAIN)
    for own, name in {"attn": "attention", "ffn": "mlp"}.items()
    for end, theirs in {"base": "base_kernel", "proj.weight": "kernel_projection.weight"}.items()
}
_SELECTOR: dict[str, Rule] = {
    f"selector_{own}.weight": (f"candidate_selector.{name}.weight", PLAIN)
    for own, name in {"predecessor": "predecessor_codebook", "successor": "successor_codebook",
                      "hidden": "hidden_projection"}.items()
}  # fmt: skip
_MARKOV: dict[str, Rule] = {
    **{f"markov_{own}.weight": (f"markov_head.markov_{own}.weight", PLAIN) for own in ("w1", "w2")},
    **{f"conf_proj.{end}": (f"confidence_head.proj.{end}", PLAIN) for end in ("weight", "bias")},
}

HEADS = {
    "eagle3": Architecture(
        "eagle3", "eagle3",
        _HEAD | _attention(QUERIES, KEYS) | {"attn_norm_2.weight": ("hidden_norm.weight", PLAIN)},
        _HEAD_ENDS | {"enc.output_norm.weight": ("input_norm.weight", PLAIN)},
    ),
    "dflash": Architecture(
        "dflash", "dflash", _HEAD | _PLAIN_ATTENTION | _HEAD_NORMS | _CONVOLUTIONS,
        _HEAD_ENDS | {"enc.output_norm.weight": ("hidden_norm.weight", PLAIN)} | _SELECTOR | _MARKOV,
    ),
}  # fmt: skip
"""`general.architecture` of the heads of drafters -> row. Which of the tensors a head has, its drafting method says."""
