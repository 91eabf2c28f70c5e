#!/usr/bin/env python3
"""Write a random Qwen 3.5 with its MTP layer, as it is published: scripts/random_qwen.py FOLDER [--layers 24].

The text decoder (three gated delta nets, then one layer of attention), the vision tower beside it, here of one block,
and `mtp.*`, in shards of one multimodal checkpoint. By default of the shapes of Qwen3.5-2B. Weights as those of
scripts/random_llama.py, which streams them.
"""

import argparse
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from random_llama import DTYPES, write_model
from torch import Tensor
from transformers import AutoModelForImageTextToText, Qwen3_5Config, Qwen3_5ForCausalLM

TEXT: dict[str, Any] = {
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 16,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "vocab_size": 248320,
    "max_position_embeddings": 262144,
    "tie_word_embeddings": True,
}
CONSTANTS = {
    "linear_attn.norm.weight": 1.0,
    "norm.weight": 0.0,
    "conv1d.weight": 0.25,
    "A_log": 0.0,
    "dt_bias": -3.0,
}
"""End of a name -> its numbers: norms that multiply by one and their weight, the mean of a few tokens, decays of about
0.95 a token, as trained models have them; drawn like matrices, they would leave next to nothing but noise."""
VISION = {"depth": 1, "hidden_size": 64, "intermediate_size": 64, "num_heads": 2}


def config(layers: int, hidden: int, vocabulary: int) -> Qwen3_5Config:
    """Of a whole checkpoint. The decoder's feed-forward width follows its own."""
    kinds = ["full_attention" if layer % 4 == 3 else "linear_attention" for layer in range(layers)]
    sizes = {"num_hidden_layers": layers, "hidden_size": hidden, "intermediate_size": 3 * hidden}
    text = TEXT | sizes | {"vocab_size": vocabulary, "layer_types": kinds, "eos_token_id": None}
    return Qwen3_5Config(text_config=text, vision_config=VISION | {"out_hidden_size": hidden}, tie_word_embeddings=True)


def mtp_tensors(whole: Qwen3_5Config) -> dict[str, Tensor]:
    """The MTP layer's, without storage: a decoder layer that attends, what joins its two inputs, and its norms."""
    text = deepcopy(whole.text_config)
    text.num_hidden_layers, text.layer_types = 1, ["full_attention"]
    layer = Qwen3_5ForCausalLM(text).model.layers[0]
    tensors = {f"mtp.layers.0.{name}": tensor for name, tensor in layer.named_parameters()}
    for norm in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
        tensors[f"mtp.{norm}.weight"] = torch.empty(text.hidden_size)
    return tensors | {"mtp.fc.weight": torch.empty(text.hidden_size, 2 * text.hidden_size)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--hidden", type=int, default=TEXT["hidden_size"], help="2048 for 2B, 1024 for 0.8B")
    parser.add_argument("--vocabulary", type=int, default=TEXT["vocab_size"])
    parser.add_argument("--shard-size", default="2GB")
    options = parser.parse_args()
    torch.set_num_threads(1)
    whole = config(options.layers, options.hidden, options.vocabulary)
    whole.text_config.mtp_num_hidden_layers = 1
    with torch.device("meta"):
        model = AutoModelForImageTextToText.from_config(whole).to(torch.bfloat16)
        tensors = dict(model.named_parameters(remove_duplicate=True)) | mtp_tensors(whole)
    model.config.dtype = torch.bfloat16
    model.config.architectures = [type(model).__name__]
    drawn = {name: tensor.to(DTYPES["bfloat16"][1]) for name, tensor in tensors.items()}
    write_model(options.folder, model, drawn, "bfloat16", options.shard_size, CONSTANTS)


if __name__ == "__main__":
    main()
