"""PARD-2 draft models as AMD publishes them: a language model of transformers, and the projection in its own file."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig

from tests.heads import MLP, WIDTH, random_tensors

IDS, MASK = (-1, 1), 5
"""Hidden states of the target, as transformers counts them, and the mask token."""


def pard2(
    folder: Path, target: PretrainedConfig, model_type: str = "llama", *, ids: tuple[int, ...] = IDS,
    bias: bool = False, tied: bool = False, checkpoint: bool = False, layers: int = 2, **more: Any,
) -> Path:  # fmt: skip
    """checkpoint: as its training exports it, in one file. `more` goes to the config."""
    width = len(ids) * target.hidden_size
    config = AutoConfig.for_model(
        model_type, vocab_size=target.vocab_size, hidden_size=WIDTH, intermediate_size=MLP, num_hidden_layers=layers,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=256, tie_word_embeddings=tied,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(4)
        model = AutoModelForCausalLM.from_config(config)
        for parameter in model.parameters():
            parameter.data = parameter.data * 6 if parameter.dim() > 1 else parameter.data + 0.1
    model.save_pretrained(folder)
    shapes: dict[str, tuple[int, ...]] = {"target_proj.weight": (WIDTH, width)}
    if bias:
        shapes["target_proj.bias"] = (WIDTH,)
    projection = random_tensors(shapes, 5, 3.0)
    if checkpoint:
        own = {f"base_model.{name}": tensor for name, tensor in load_file(folder / "model.safetensors").items()}
        save_file(own | projection, folder / "model.safetensors")
    else:
        torch.save(projection, folder / "warp_model.bin")
    said = {
        "pard_token": MASK, "spd_type": "pard2", "pard2": True, "pard2_scale": 0.5, "pard2_proj_bias": bias,
        "pard2_target_dim": width, "pard2_target_layers": list(ids),
    }  # fmt: skip
    path = folder / "config.json"
    words = json.loads(path.read_text()) | said | more
    path.write_text(json.dumps({key: value for key, value in words.items() if value is not None}))
    return folder
