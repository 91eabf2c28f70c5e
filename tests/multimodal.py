"""Tiny random models that read images beside text, in the layouts in which such checkpoints are published."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import (
    AutoModel,
    AutoModelForImageTextToText,
    Gemma3Config,
    Gemma3nConfig,
    Gemma3nVisionConfig,
    Gemma4Config,
    Mistral3Config,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen3_5Config,
)

from tests import zoo
from tests.vision import NAMES as SEEING
from tests.vision import config as seeing_config

VISION = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
          "image_size": 28, "patch_size": 14}  # fmt: skip
_OWN = ("gemma3", "gemma3n", "gemma4", "mistral3", "ministral3", "qwen3_5")
NAMES = (*_OWN, *(name for name in SEEING if name not in _OWN))

PUBLISHED = {
    "model.language_model.": "language_model.model.",
    "model.vision_tower.": "vision_tower.vision_model.",
    "model.multi_modal_projector.": "multi_modal_projector.",
    "lm_head.": "language_model.lm_head.",
}
"""transformers' own names -> those of Gemma 3 and Mistral 3 as Google and Mistral published them. For the others they
are the same."""


class Gemma3nVision(PreTrainedModel):
    """Stands for Gemma 3n's vision tower, which comes from a library that text needs not."""

    config_class = Gemma3nVisionConfig

    def __init__(self, config: Gemma3nVisionConfig) -> None:
        super().__init__(config)
        for index in range(8):
            self.register_module(f"block{index}", nn.Linear(4, 4, bias=False))
        self.post_init()


AutoModel.register(Gemma3nVisionConfig, Gemma3nVision, exist_ok=True)


def model(name: str, **settings: Any) -> PreTrainedModel:
    """Return the whole model in float32, eager, with the zoo's tokens; equal arguments give equal weights. settings: of
    its text decoder."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        built = AutoModelForImageTextToText.from_config(_config(name, settings), attn_implementation="eager")
        zoo.enliven(built)
    return built.eval()


def _config(name: str, settings: dict[str, Any]) -> PreTrainedConfig:
    if name not in _OWN:
        return seeing_config(name, {"vocab_size": zoo.VOCABULARY, "max_position_embeddings": 256} | settings)
    if name == "gemma3":
        text = zoo.config("gemma3_text", **settings).to_dict()
        vision = {"model_type": "siglip_vision_model"} | VISION
        return Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4, image_token_index=5)
    if name == "gemma3n":
        text = zoo.config("gemma3n_text", **settings).to_dict()
        audio = {"conf_num_hidden_layers": 1, "hidden_size": 16, "conf_num_attention_heads": 2}
        return Gemma3nConfig(text_config=text, vision_config={"hidden_size": 16}, audio_config=audio)
    if name == "gemma4":
        text = zoo.config("gemma4_text", **settings).to_dict()
        vision = {"num_key_value_heads": 2, "head_dim": 8, "position_embedding_size": 16} | VISION
        return Gemma4Config(text_config=text, vision_config=vision, image_token_id=5, audio_token_id=6)
    if name == "qwen3_5":
        vision = {"hidden_size": 16, "intermediate_size": 16, "depth": 1, "num_heads": 2, "out_hidden_size": 64,
                  "patch_size": 4, "num_position_embeddings": 16}  # fmt: skip
        heads = dict.fromkeys(("linear_num_key_heads", "linear_num_value_heads"), 2)
        widths = dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim"), 8)
        text = _sizes(settings) | {"layer_types": ["linear_attention", "full_attention"]} | heads | widths
        return Qwen3_5Config(text_config=text, vision_config=vision)
    text = _sizes(settings) | {"model_type": {"mistral3": "mistral"}.get(name, name)}
    if name == "ministral3":
        text["rope_parameters"] = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0,
                                   "original_max_position_embeddings": 64, "llama_4_scaling_beta": 0.1}  # fmt: skip
    return Mistral3Config(
        text_config=text, vision_config={"model_type": "pixtral", "head_dim": 8} | VISION, image_token_index=5,
        tie_word_embeddings=name == "ministral3",
    )  # fmt: skip


def _sizes(settings: dict[str, Any]) -> dict[str, Any]:
    wanted = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
              "num_key_value_heads", "head_dim", "max_position_embeddings", "pad_token_id", "bos_token_id",
              "eos_token_id")  # fmt: skip
    return {name: zoo.SIZES[name] for name in wanted} | settings


def save(built: PreTrainedModel, folder: Path, layout: str = "saved", *, tokenizer: bool = False) -> Path:
    """layout: "saved", as transformers writes it today; "published"; "inner", with the names inside transformers, as it
    wrote them for a while."""
    built.save_pretrained(folder)
    if layout != "saved":
        inner = built.state_dict()
        names = PUBLISHED if layout == "published" and built.config.model_type in ("gemma3", "mistral3") else {}
        is_tied = built.config.tie_word_embeddings
        tensors = {renamed(name, names): tensor.clone().contiguous() for name, tensor in inner.items()
                   if not (is_tied and name == "lm_head.weight")}  # fmt: skip
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    if tokenizer:
        zoo.byte_tokenizer().save_pretrained(folder)
    return folder


def renamed(name: str, prefixes: dict[str, str]) -> str:
    return next((new + name.removeprefix(old) for old, new in prefixes.items() if name.startswith(old)), name)


def tensor_names(folder: Path) -> list[str]:
    return sorted(load_file(folder / "model.safetensors"))
