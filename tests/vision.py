"""Tiny models that see pictures, with the files of their image processors, and pictures to show them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import (
    AutoImageProcessor,
    AutoModelForImageTextToText,
    Gemma3Config,
    Gemma4Config,
    Idefics3Config,
    InternVLConfig,
    Lfm2VlConfig,
    LlavaConfig,
    LlavaNextConfig,
    LlavaOnevisionConfig,
    Mistral3Config,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2_5_VLConfig,
    Qwen3_5Config,
    Qwen3VLConfig,
    SmolVLMConfig,
)

from tests import zoo

TILE = 56
_VIT = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
_SIGLIP = _VIT | {"model_type": "siglip_vision_model", "image_size": TILE, "patch_size": 14}
_TOKENS = {
    "gemma3": ("<start_of_image>", "<end_of_image>", "<image_soft_token>"),
    "gemma4": ("<|image|>", "<|image>", "<image|>", "<|video|>", "<|audio|>"),
    "idefics3": ("<image>", "<fake_token_around_image>", "<global-img>",
                 *(f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5))),
    "internvl": ("<IMG_CONTEXT>", "<img>", "</img>"),
    "lfm2_vl": ("<image>", "<|image_start|>", "<|image_end|>", "<|img_thumbnail|>",
                *(f"<|img_row_{row}_col_{column}|>" for row in range(1, 4) for column in range(1, 4))),
    "llava": ("<image>", "<pad>"),
    "llava_onevision": ("<image>", "<video>"),
    "mistral3": ("[IMG]", "[IMG_BREAK]", "[IMG_END]"),
    "qwen_vl": ("<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"),
}  # fmt: skip
_CANVASES = [[TILE, 2 * TILE], [2 * TILE, TILE], [2 * TILE, 2 * TILE], [TILE, 3 * TILE], [3 * TILE, TILE]]
_CLIP = {"size": {"shortest_edge": TILE}, "crop_size": {"height": TILE, "width": TILE}, "do_center_crop": True}
_PROCESSORS = {
    "llava": {"image_processor_type": "CLIPImageProcessor", "resample": 3} | _CLIP,
    "llava_next": {"image_processor_type": "LlavaNextImageProcessor", "image_grid_pinpoints": _CANVASES, "do_pad": True,
                   "resample": 3} | _CLIP,
    "lfm2_vl": {"image_processor_type": "Lfm2VlImageProcessor", "tile_size": 32, "encoder_patch_size": 8,
                "max_tiles": 3, "min_image_tokens": 2, "max_image_tokens": 8, "max_pixels_tolerance": 1.5},
    "llava_onevision": {"image_processor_type": "LlavaOnevisionImageProcessor", "size": {"height": TILE, "width": TILE},
                        "image_grid_pinpoints": _CANVASES},
    "mistral3": {"image_processor_type": "PixtralImageProcessor", "size": {"longest_edge": 90},
                 "patch_size": {"height": 28, "width": 28}},
    "pixtral": {"image_processor_type": "PixtralImageProcessor", "size": {"longest_edge": 90},
                "patch_size": {"height": 14, "width": 14}},
    "qwen_vl": {"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 7, "merge_size": 2,
                "temporal_patch_size": 2, "size": {"shortest_edge": 4 * 14 * 14, "longest_edge": 12 * 14 * 14}},
    "gemma3": {"image_processor_type": "Gemma3ImageProcessor", "size": {"height": TILE, "width": TILE}, "resample": 2},
    "gemma4": {"image_processor_type": "Gemma4ImageProcessor", "patch_size": 4, "pooling_kernel_size": 3,
               "max_soft_tokens": 70},
    "idefics3": {"image_processor_type": "Idefics3ImageProcessor", "size": {"longest_edge": 2 * TILE},
                 "max_image_size": {"longest_edge": TILE}},
    "internvl": {"image_processor_type": "GotOcr2ImageProcessor", "size": {"height": TILE, "width": TILE},
                 "crop_to_patches": True, "min_patches": 1, "max_patches": 4},
}  # fmt: skip
_WHOLE = {
    "llava": {"image_token": "<image>", "num_additional_image_tokens": 1, "patch_size": 14,
              "vision_feature_select_strategy": "default"},
    "pixtral": {"image_token": "[IMG]", "image_break_token": "[IMG_BREAK]", "image_end_token": "[IMG_END]",
                "patch_size": 14},
}  # fmt: skip
"""Files of whole processors beside those of their image processors, as published."""
FLAT = ("internvl", "llava", "llava_next", "llava_onevision", "mistral3", "pixtral", "qwen2_5_vl", "qwen3_vl",
        "qwen3_5")  # fmt: skip
"""Types whose processor takes the pictures of one prompt as a list."""
ON_AXES = ("qwen2_5_vl", "qwen3_vl", "qwen3_5")
"""Types whose rows have positions on three axes."""
NAMES = ("idefics3", "smolvlm", "internvl", "gemma3", "gemma4", "lfm2_vl", "llava", "llava_next", "llava_onevision",
         "mistral3", "pixtral", "qwen2_5_vl", "qwen3_vl", "qwen3_5")  # fmt: skip
CHAT = (
    "{% for m in messages %}{{ m['role'] }}:{% if m['content'] is string %}{{ m['content'] }}{% else %}"
    "{% for p in m['content'] %}{% if p['type'] == 'image' %}IMAGE{% else %}{{ p['text'] }}{% endif %}{% endfor %}"
    "{% endif %}\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
    "{{ note | tojson if note }}"
)


def family(name: str) -> str:
    return {"smolvlm": "idefics3", "qwen2_5_vl": "qwen_vl", "qwen3_vl": "qwen_vl", "qwen3_5": "qwen_vl",
            "llava_next": "llava", "pixtral": "mistral3"}.get(name, name)  # fmt: skip


def placeholder(name: str) -> str:
    return _TOKENS[family(name)][0]


def first_id() -> int:
    """Return the id of the placeholder: the first after the byte tokens."""
    return zoo.VOCABULARY


def model(name: str, **settings: Any) -> PreTrainedModel:
    """Return the whole model in float32, eager; equal arguments give equal weights. settings: of its text decoder."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        built = AutoModelForImageTextToText.from_config(config(name, settings), attn_implementation="eager")
        zoo.enliven(built)
    return built.eval()


def config(name: str, settings: dict[str, Any]) -> PreTrainedConfig:
    sizes = {key: zoo.SIZES[key] for key in (
        "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
        "pad_token_id", "bos_token_id", "eos_token_id",
    )}  # fmt: skip
    if name in _GEMMAS:
        return _GEMMAS[name](settings)
    text = sizes | {"max_position_embeddings": 512, "vocab_size": zoo.VOCABULARY + 32, "eos_token_id": None} | settings
    return _CONFIGS[family(name)](name, text)


def _gemma3(settings: dict[str, Any]) -> PreTrainedConfig:
    own = {"vocab_size": zoo.VOCABULARY + 32, "eos_token_id": None} | settings
    return Gemma3Config(
        text_config=zoo.config("gemma3_text", **own).to_dict(), vision_config=_SIGLIP, mm_tokens_per_image=16,
        boi_token_index=first_id(), eoi_token_index=first_id() + 1, image_token_index=first_id() + 2,
    )  # fmt: skip


def _gemma4(settings: dict[str, Any]) -> PreTrainedConfig:
    own = {
        **dict.fromkeys(("vocab_size", "vocab_size_per_layer_input"), zoo.VOCABULARY + 32), "eos_token_id": None,
        "use_bidirectional_attention": "vision",
    } | settings  # fmt: skip
    seer = _VIT | {"num_key_value_heads": 1, "head_dim": 16, "patch_size": 4, "position_embedding_size": 256}
    names = ("image_token_id", "boi_token_id", "eoi_token_id", "video_token_id", "audio_token_id")
    return Gemma4Config(
        text_config=zoo.config("gemma4_text", **own).to_dict(), vision_config=seer, audio_config=None,
        **dict(zip(names, range(first_id(), first_id() + 5), strict=True)),
    )  # fmt: skip


def _internvl(name: str, text: dict[str, Any]) -> PreTrainedConfig:
    sides = {"image_size": [TILE, TILE], "patch_size": [14, 14]}
    return InternVLConfig(
        text_config=text | {"model_type": "qwen2"}, vision_config=_VIT | sides, image_token_id=first_id(),
        image_seq_length=4,
    )  # fmt: skip


def _lfm2(name: str, text: dict[str, Any]) -> PreTrainedConfig:
    siglip2 = _VIT | {"model_type": "siglip2_vision_model", "patch_size": 8, "num_patches": 25}
    layers = {"layer_types": ["conv", "full_attention"], "conv_L_cache": 3}
    return Lfm2VlConfig(
        text_config=text | {"model_type": "lfm2"} | layers, vision_config=siglip2, image_token_id=first_id(),
        projector_hidden_size=64,
    )  # fmt: skip


def _onevision(name: str, text: dict[str, Any]) -> PreTrainedConfig:
    return LlavaOnevisionConfig(
        text_config=text | {"model_type": "qwen2"}, vision_config=_SIGLIP, image_token_index=first_id(),
        video_token_index=first_id() + 1, image_grid_pinpoints=_CANVASES, vision_aspect_ratio="anyres_max_2",
    )  # fmt: skip


def _llava(name: str, text: dict[str, Any]) -> PreTrainedConfig:
    clip = _VIT | {"model_type": "clip_vision_model", "image_size": TILE, "patch_size": 14, "num_hidden_layers": 3}
    kind = {"text_config": text | {"model_type": "llama"}, "vision_config": clip, "image_token_index": first_id()}
    return LlavaConfig(**kind) if name == "llava" else LlavaNextConfig(**kind, image_grid_pinpoints=_CANVASES)


def _mistral(name: str, text: dict[str, Any]) -> PreTrainedConfig:
    pixtral = _VIT | {"model_type": "pixtral", "image_size": 112, "patch_size": 14}
    kind = {"text_config": text | {"model_type": "mistral", "head_dim": 16}, "image_token_index": first_id()}
    if name == "mistral3":
        return Mistral3Config(**kind, vision_config=pixtral, tie_word_embeddings=False)
    return LlavaConfig(
        **kind, vision_config=pixtral | {"head_dim": 16}, vision_feature_layer=-1, image_seq_length=1,
        vision_feature_select_strategy="full",
    )  # fmt: skip


def _idefics(name: str, text: dict[str, Any]) -> PreTrainedConfig:
    kind = {"idefics3": Idefics3Config, "smolvlm": SmolVLMConfig}[name]
    vision = _VIT | {"image_size": TILE, "patch_size": 14}
    return kind(
        text_config=text | {"model_type": "llama"}, vision_config=vision, image_token_id=first_id(), scale_factor=2,
        pad_token_id=0,
    )  # fmt: skip


def _qwen(name: str, text: dict[str, Any]) -> PreTrainedConfig:
    """Return a config with positions on three axes, which share the 8 rotary frequencies of a head."""
    names = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
    ids = dict(zip(names, range(first_id(), first_id() + 4), strict=True))
    vision = {"hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": text["hidden_size"]}
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": 1e4}
    if name == "qwen2_5_vl":
        rope["mrope_section"] = [2, 3, 3]
        windows = {"depth": 2, "patch_size": 7, "window_size": 28, "fullatt_block_indexes": [1]}
        return Qwen2_5_VLConfig(text_config=text | {"rope_parameters": rope}, vision_config=vision | windows, **ids)
    rope |= {"mrope_section": [4, 2, 2], "mrope_interleaved": True}
    if name == "qwen3_5":
        rope |= {"mrope_section": [2, 1, 1], "partial_rotary_factor": 0.5}
        hybrid = {"head_dim": 16, "layer_types": ["linear_attention", "full_attention"] * 2, "num_hidden_layers": 4,
                  "linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_num_key_heads": 2,
                  "linear_num_value_heads": 4, "rope_parameters": rope}  # fmt: skip
        plain = {"depth": 2, "patch_size": 7, "num_position_embeddings": 25}
        return Qwen3_5Config(text_config=text | hybrid, vision_config=vision | plain, **ids)
    deep = {"depth": 3, "patch_size": 7, "num_position_embeddings": 25, "deepstack_visual_indexes": [0, 1]}
    three = {"rope_parameters": rope, "head_dim": 16, "num_hidden_layers": 3}
    return Qwen3VLConfig(text_config=text | three, vision_config=vision | deep, **ids)


_GEMMAS = {"gemma3": _gemma3, "gemma4": _gemma4}
_CONFIGS = {
    "idefics3": _idefics, "internvl": _internvl, "lfm2_vl": _lfm2, "llava": _llava, "llava_onevision": _onevision,
    "mistral3": _mistral, "qwen_vl": _qwen,
}  # fmt: skip


def save(built: PreTrainedModel, name: str, folder: Path) -> Path:
    """Write a model with its image processor, a tokenizer that knows its placeholders, and a chat template."""
    built.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(_PROCESSORS.get(name) or _PROCESSORS[family(name)]))
    if name == "qwen2_5_vl":
        _publish(folder)
    if whole := _WHOLE.get(name) or _WHOLE.get(family(name)):
        (folder / "processor_config.json").write_text(json.dumps(whole))
    if family(name) == "llava":
        tensors = load_file(folder / "model.safetensors")
        published = {key.replace("vision_tower.", "vision_tower.vision_model."): each for key, each in tensors.items()}
        save_file(published, folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer = zoo.byte_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": list(_TOKENS[family(name)])})
    tokenizer.chat_template = CHAT.replace("IMAGE", placeholder(name))
    tokenizer.save_pretrained(folder)
    return folder


def _publish(folder: Path) -> None:
    """Write config.json as Qwen2.5-VL's is published: with the decoder's part beside `vision_config`."""
    path = folder / "config.json"
    whole = json.loads(path.read_text())
    text = whole.pop("text_config")
    rope = text.pop("rope_parameters")
    scaling = {
        "rope_theta": rope["rope_theta"],
        "rope_scaling": {"type": "mrope", "mrope_section": rope["mrope_section"]},
    }
    del text["model_type"]
    path.write_text(json.dumps(text | scaling | whole))


def processor(folder: Path) -> Any:
    """Return transformers' own image processor, which computes with Pillow."""
    return AutoImageProcessor.from_pretrained(folder, backend="pil")


@contextmanager
def width_first() -> Iterator[None]:
    """Let Pillow resize the width first inside a `with` block, as older versions always did."""
    own = Image.Image.resize

    def resize(self: Image.Image, size: tuple[int, int], *args: Any, **settings: Any) -> Image.Image:
        return own(own(self, (size[0], self.height), *args, **settings), size, *args, **settings)

    with patch.object(Image.Image, "resize", resize):
        yield


def picture(height: int, width: int, seed: int = 0) -> NDArray[np.uint8]:
    """Return a picture with edges, a gradient and noise, uint8 [height, width, 3]."""
    random = np.random.default_rng([height, width, seed])
    rows, columns = np.mgrid[:height, :width]
    smooth = np.stack([rows * 255 / height, columns * 255 / width, (rows + columns) % 64 * 4], 2)
    return np.clip(smooth + random.normal(0, 20, smooth.shape), 0, 255).astype(np.uint8)
