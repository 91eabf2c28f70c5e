#!/usr/bin/env python
"""Write a random Llama of 0.35 B parameters, for measurements of builds and speed: scripts/random_llama.py FOLDER."""

import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

CONFIG = {
    "num_hidden_layers": 24,
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "intermediate_size": 2816,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}


def main(folder: str) -> None:
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**CONFIG)).to(torch.float32)
    model.config.eos_token_id = model.generation_config.eos_token_id = None
    model.save_pretrained(folder)
    print(f"{folder}: {sum(p.numel() for p in model.parameters()) / 1e9:.3f} B parameters", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1])
