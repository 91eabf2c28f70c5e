"""Tiny random decoder-only models of many architectures, built from transformers' own configuration classes.

    zoo.names("works")             the rows that must compile
    zoo.config("gemma2")           the transformers configuration of one row
    zoo.model("gemma2", seed=1)    the eager float32 model, the same weights for the same seed
    zoo.save("gemma2", folder)     a folder in Hugging Face layout, with a tokenizer

Sizes are chosen so that mistakes show: grouped heads, windows far shorter than the positions, soft caps that bite, and
weights drawn wide enough that every token of the context moves the logits.
"""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    CONFIG_MAPPING,
    AutoModelForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from tests.zoo_hybrid import HYBRIDS

# At these sizes a second thread costs more than it gives, and six times as much on a busy machine.
torch.set_num_threads(1)

PAD, BEGIN = 0, 1
SPECIAL_TOKENS = ("<pad>", "<s>", "</s>")
MERGES = ((" ", "t"), ("h", "e"), (" t", "he"), ("i", "n"), ("e", "r"), ("o", "n"), ("r", "e"), ("a", "n"), (" ", "a"),
          ("s", "e"), ("l", "f"), ("se", "lf"), (" ", "="))  # fmt: skip
VOCABULARY = len(SPECIAL_TOKENS) + 256 + len(MERGES)
"""Tokens of every row: every byte has one, so that any text can be a prompt."""

SLIDING, FULL, WINDOW = "sliding_attention", "full_attention", 16

# Every name that some family has for the same size; a configuration takes the names that it declares.
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "lru_width"), 64),
    **dict.fromkeys(("intermediate_size", "ffn_dim"), 96),
    **dict.fromkeys(("num_hidden_layers", "num_layers", "n_layer", "n_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "num_heads", "n_head", "n_heads", "attention_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads"), 2),
    "head_dim": 16,
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"), 256),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 4),
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "pad_token_id": PAD,
    "bos_token_id": BEGIN,
    "eos_token_id": None,
}
MULTIPLIERS = {
    "embedding_multiplier": 2.0,
    "residual_multiplier": 0.6,
    "attention_multiplier": 0.4,
    "logits_scaling": 0.5,
}

LATENT = {
    "num_key_value_heads": 4,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 12,
    "v_head_dim": 16,
}
"""Sizes of latent attention, all of them different where they can be."""

SCALED_EMBEDDINGS = (
    "biogpt", "gemma", "gemma2", "gemma3", "gemma3_text", "gemma3n_text", "gemma4_text", "recurrent_gemma", "xglm"
)  # fmt: skip
"""Families that multiply embeddings by the root of their size: a large tied embedding would only echo its token."""
UNSCALED_SCORES = ("gemma3n_text", "gemma4_text")
"""Families whose norms alone scale the scores: with weights around one, softmax would see little but the best key."""

PER_LAYER = {
    "num_hidden_layers": 4,
    "num_kv_shared_layers": 2,
    "sliding_window": WINDOW,
    "vocab_size_per_layer_input": VOCABULARY,
    "hidden_size_per_layer_input": 8,
    "final_logit_softcapping": 2.0,
}
"""Gemma 3n and 4: the last layers have no keys and values, and an embedding more for all layers."""
GLOBAL = {"layer_types": 2 * [SLIDING, FULL], "global_head_dim": 24, "num_global_key_value_heads": 1}


@dataclass(frozen=True)
class Row:
    """One model. `expect`: "works", or a part of the text with which it is refused."""

    model_type: str
    settings: dict[str, Any]
    expect: str


def _works(model_type: str, **settings: Any) -> Row:
    return Row(model_type, settings, "works")


def _refused(model_type: str, reason: str, **settings: Any) -> Row:
    return Row(model_type, settings, reason)


def _rope(rope_type: str, **settings: Any) -> Row:
    return _works("llama", rope_parameters={"rope_type": rope_type, "rope_theta": 10000.0, **settings})


ROWS: dict[str, Row] = {
    "llama": _works("llama"),
    "qwen2": _works("qwen2"),
    "qwen3": _works("qwen3"),
    "mistral": _works("mistral", sliding_window=WINDOW),
    "gemma2": _works(
        "gemma2",
        num_hidden_layers=4,
        sliding_window=WINDOW,
        query_pre_attn_scalar=4,
        attn_logit_softcapping=5.0,
        final_logit_softcapping=2.0,
    ),
    "gemma3_text": _works(
        "gemma3_text",
        num_hidden_layers=4,
        sliding_window=WINDOW,
        query_pre_attn_scalar=4,
        layer_types=[SLIDING, FULL, SLIDING, FULL],
    ),
    "phi": _works("phi"),
    "phi3": _works("phi3"),
    "gpt_neox": _works("gpt_neox"),
    "gpt2": _works("gpt2"),
    "opt": _works("opt"),
    "olmo2": _works("olmo2"),
    "starcoder2": _works("starcoder2", sliding_window=WINDOW),
    "granite": _works("granite", **MULTIPLIERS),
    "stablelm": _works("stablelm", use_qkv_bias=True),
    "cohere": _works("cohere", logit_scale=0.5),
    "smollm3": _works("smollm3", no_rope_layers=[1, 0]),
    "glm4": _works("glm4"),
    "mixtral": _works("mixtral"),
    "qwen3_moe": _works("qwen3_moe"),
    # Variations of the families above.
    "llama_tied": _works("llama", tie_word_embeddings=True),
    "llama_bias": _works("llama", attention_bias=True, mlp_bias=True),
    "llama_head_dim": _works("llama", hidden_size=48, head_dim=16),
    "llama_rope_linear": _rope("linear", factor=4.0),
    "llama_rope_dynamic": _rope("dynamic", factor=4.0),
    "llama_rope_llama3": _rope(
        "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32
    ),
    "llama_rope_yarn": _rope("yarn", factor=4.0, original_max_position_embeddings=64),
    "qwen2_sliding": _works(
        "qwen2", num_hidden_layers=4, use_sliding_window=True, sliding_window=WINDOW, max_window_layers=2
    ),
    "phi3_longrope": _works(
        "phi3",
        original_max_position_embeddings=32,
        rope_parameters={
            "rope_type": "longrope",
            "rope_theta": 10000.0,
            "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7],
            "long_factor": [1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0],
        },
    ),
    # Other families, in the order of the alphabet.
    "apertus": _works("apertus"),
    "arcee": _works("arcee"),
    "aria_text": _works("aria_text", moe_num_experts=4, moe_topk=2, moe_num_shared_experts=1),
    "bamba": _works("bamba", attn_layer_indices=[1], mamba_n_heads=4, mamba_d_state=8, mamba_chunk_size=16),
    "bart": _works("bart", decoder_layers=2, decoder_attention_heads=4, decoder_ffn_dim=96, forced_eos_token_id=None),
    "biogpt": _works("biogpt"),
    "bloom": _refused("bloom", "2 of its 2 layers do not go through"),
    "codegen": _works("codegen", rotary_dim=8),
    "cohere2": _works("cohere2", sliding_window=WINDOW, layer_types=[SLIDING, FULL], logit_scale=0.5),
    "deepseek_v2": _works("deepseek_v2", **LATENT, n_group=2, topk_group=1, first_k_dense_replace=1),
    "deepseek_v3": _works("deepseek_v3", **LATENT, n_group=2, topk_group=1, first_k_dense_replace=1),
    "deepseek_v32": _refused(
        "deepseek_v32", "choose the rows that they attend to", **LATENT, n_group=2, topk_group=1, index_head_dim=16
    ),
    "diffllama": _works("diffllama", num_key_value_heads=4, num_attention_heads=8),
    "dots1": _works("dots1", n_shared_experts=1, first_k_dense_replace=1),
    "ernie4_5": _works("ernie4_5"),
    "exaone4": _works("exaone4", sliding_window=WINDOW, layer_types=[SLIDING, FULL]),
    "falcon": _refused("falcon", "2 of its 2 layers do not go through", new_decoder_architecture=True),
    "falcon_alibi": _refused(
        "falcon",
        "2 of its 2 layers do not go through",
        alibi=True,
        multi_query=False,
        num_kv_heads=None,
        parallel_attn=False,
        bias=True,
    ),
    "gemma": _works("gemma"),
    "gemma3n_text": _works(
        "gemma3n_text",
        **PER_LAYER,
        layer_types=GLOBAL["layer_types"],
        laurel_rank=8,
        activation_sparsity_pattern=[0.5, 0.0, 0.0, 0.0],
    ),
    "gemma4_text": _works("gemma4_text", **PER_LAYER, **GLOBAL, attention_k_eq_v=True, use_double_wide_mlp=True),
    "gemma4_text_moe": _works(
        "gemma4_text",
        **(PER_LAYER | {"hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0, "num_hidden_layers": 2}),
        **(GLOBAL | {"layer_types": [SLIDING, FULL]}),
        enable_moe_block=True,
        top_k_experts=2,
    ),
    "gpt_bigcode": _works("gpt_bigcode"),
    "gpt_neo": _refused(
        "gpt_neo", "2 of its 2 layers do not go through", attention_types=[[["global", "local"], 1]], window_size=WINDOW
    ),
    "gpt_oss": _works("gpt_oss", sliding_window=WINDOW),
    "gptj": _works("gptj", rotary_dim=8),
    "glm4_moe_lite": _works("glm4_moe_lite", **LATENT, n_group=2, topk_group=1, first_k_dense_replace=1),
    "granitemoe": _works("granitemoe", **MULTIPLIERS),
    "helium": _works("helium"),
    "hunyuan_v1_dense": _works("hunyuan_v1_dense"),
    "hunyuan_v1_moe": _works("hunyuan_v1_moe", moe_topk=2),
    "hrm_text": _works("hrm_text"),
    "jamba": _works("jamba", attn_layer_period=2, attn_layer_offset=1),
    "jetmoe": _works("jetmoe"),
    "lfm2": _works("lfm2", layer_types=["conv", FULL], block_multiple_of=8),
    "llama4_text": _works("llama4_text", intermediate_size_mlp=96),
    "llama4_chunked": _works("llama4_text", intermediate_size_mlp=96, attention_chunk_size=WINDOW),
    "mamba": _works("mamba", state_size=8, expand=1),
    "mimo_v2_flash": _works("mimo_v2_flash", sliding_window=WINDOW),
    "minicpm3": _works("minicpm3", **LATENT, scale_emb=1, dim_model_base=64),
    "minimax": _works("minimax", block_size=16),
    "mpt": _refused("mpt", "2 of its 2 layers do not go through"),
    "nemotron": _works("nemotron"),
    "olmo": _works("olmo"),
    "olmo3": _works("olmo3", sliding_window=WINDOW, layer_types=[SLIDING, FULL]),
    "persimmon": _works("persimmon"),
    "phimoe": _works("phimoe"),
    "recurrent_gemma": _works("recurrent_gemma", num_hidden_layers=3, attention_window_size=WINDOW),
    "roberta": _refused("roberta", "given the positions 0, 1, ..", is_decoder=True),
    "seed_oss": _works("seed_oss"),
    "xglm": _refused("xglm", "2 of its 2 layers do not go through"),
    **{model_type: _works(model_type, **settings) for model_type, settings in HYBRIDS.items()},
}


FIRST = ("llama", "gemma2", "gpt2", "mixtral", "qwen3_5_text", "mamba2", "lfm2", "gpt_oss", "bloom")
"""The rows of the first tier, a kind of layer each: plain; windows and soft caps; learned positions; experts; delta
rule; state space; convolution; sinks; and one that is refused."""
REASON = "every architecture of the zoo"


def names(expect: str | None = None) -> list[str]:
    """Return names of the rows with this `expect`, or of all rows when it is None, in the order of the table."""
    return [name for name, row in ROWS.items() if expect in (None, row.expect)]


def config(name: str, **settings: Any) -> PreTrainedConfig:
    """Return the transformers configuration of one row, some settings changed. Raises KeyError for a name that is not
    in the table."""
    row = ROWS[name]
    configuration = CONFIG_MAPPING[row.model_type]
    declared = {field.name for field in fields(configuration)}
    sizes = {key: value for key, value in SIZES.items() if key in declared}
    return configuration(**(sizes | row.settings | settings))


def model(name: str, seed: int = 0, **settings: Any) -> PreTrainedModel:
    """Return a float32 model in evaluation mode with eager attention; equal seeds give equal weights. settings: its."""
    return lively(config(name, **settings), seed)


def lively(configuration: PreTrainedConfig, seed: int = 0, family: type = AutoModelForCausalLM) -> PreTrainedModel:
    """Return the same of any configuration. family: transformers' class for what it is to be made as."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        built = family.from_config(configuration, dtype=torch.float32, attn_implementation="eager")
        enliven(built)
    return built.eval()


@torch.no_grad()
def enliven(built: PreTrainedModel) -> None:
    """Redraw the weights: initialised ones are so small that a lost layer or a wrong mask hardly moves the logits."""
    embedding = built.get_input_embeddings().weight
    for parameter in built.parameters():
        if parameter is embedding:
            parameter.normal_(std=0.1 if built.config.model_type in SCALED_EMBEDDINGS else 0.4)
        elif parameter.dim() >= 2:
            parameter.normal_(std=1.7 / min(parameter.shape[-2:]) ** 0.5)
        elif parameter.unique().numel() == 1:  # a norm's weight or a bias; what varies already has a meaning
            parameter.add_(torch.randn_like(parameter), alpha=0.25)
    for name, tensor in built.state_dict().items():
        if name.endswith("layer_scalar"):
            tensor.fill_(0.8)
        if name.endswith("q_norm.weight") and built.config.model_type in UNSCALED_SCORES:
            tensor.mul_(0.6)


def byte_tokenizer(eos: int | None = None) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE tokenizer of `VOCABULARY` tokens: three special ones, one a byte, then a few merges."""
    pieces = [*SPECIAL_TOKENS, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    merges = [(left.replace(" ", "Ġ"), right.replace(" ", "Ġ")) for left, right in MERGES]
    pieces += [left + right for left, right in merges]
    bytelevel = Tokenizer(models.BPE({piece: index for index, piece in enumerate(pieces)}, merges))
    bytelevel.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytelevel.decoder = decoders.ByteLevel()
    bytelevel.add_special_tokens(list(SPECIAL_TOKENS))
    special = {"pad_token": SPECIAL_TOKENS[PAD], "bos_token": SPECIAL_TOKENS[BEGIN]}
    if eos is not None:
        special["eos_token"] = pieces[eos]
    return PreTrainedTokenizerFast(tokenizer_object=bytelevel, clean_up_tokenization_spaces=False, **special)


def save(name: str, folder: Path, *, seed: int = 0, tokenizer: bool = True, eos: int | None = None) -> Path:
    """Write the model in Hugging Face layout (config, safetensors, tokenizer) and return the folder.

    `eos` is the token that ends a generation; without one, generations run to their length.
    """
    built = model(name, seed)
    built.config.eos_token_id = eos
    built.generation_config.eos_token_id = eos
    built.save_pretrained(folder)
    if tokenizer:
        byte_tokenizer(eos).save_pretrained(folder)
    return folder
