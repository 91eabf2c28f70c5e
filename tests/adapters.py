"""Tiny models, and adapters that peft writes for them."""

import peft
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 64, "max_position_embeddings": 64}  # fmt: skip
BASES = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, attention_bias=True)),
    "tied": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=True)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=8)),
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=64, n_positions=64,
                                               bos_token_id=1, eos_token_id=1)),
    "moe": lambda: MixtralForCausalLM(MixtralConfig(**SIZES, num_local_experts=4)),
}  # fmt: skip


def stirred(model):
    """Return the model with numbers in all that an adapter trains, which begins with zeros."""
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            noise = torch.randn_like(parameter) * 0.2
            parameter.data = parameter.data.abs() * (1 + noise.abs()) if "magnitude" in name else parameter.data + noise
    return model


def write(folder, base="llama", **settings):
    """Write a base model to <folder>/base and an adapter to <folder>/adapter. Return peft's model, unmerged."""
    torch.manual_seed(7)
    model = BASES[base]().eval()
    model.save_pretrained(folder / "base")
    adapted = stirred(peft.get_peft_model(model, peft.LoraConfig(r=4, **settings))).eval()
    adapted.save_pretrained(folder / "adapter")
    return adapted
