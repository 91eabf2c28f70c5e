"""Pictures of LLaVA and Pixtral: config and processor files as they are published, and what does not go with them."""

import json
from pathlib import Path
from typing import Any

import pytest

from speccompile.compiler.checkpoints.images import read_images
from speccompile.errors import CheckpointError, PromptError, UnsupportedModelError
from speccompile.machine.formats.image_settings import ImageSettings
from speccompile.runtime.images.families import FAMILIES

CLIP = {"model_type": "clip_vision_model", "image_size": 336, "patch_size": 14, "num_hidden_layers": 24}
PINPOINTS = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]
MIDDLE = {"crop_size": {"height": 336, "width": 336}, "do_center_crop": True, "do_convert_rgb": True,
          "do_normalize": True, "do_rescale": True, "do_resize": True, "resample": 3,
          "rescale_factor": 0.00392156862745098, "size": {"shortest_edge": 336}}  # fmt: skip
PUBLISHED = {
    "llava-1.5-7b-hf": (
        {"model_type": "llava", "image_token_index": 32000, "text_config": {"model_type": "llama", "vocab_size": 32064},
         "vision_config": CLIP, "vision_feature_layer": -2, "vision_feature_select_strategy": "default"},
        MIDDLE | {"image_processor_type": "CLIPImageProcessor"},
        {"image_token": "<image>", "num_additional_image_tokens": 1, "patch_size": 14,
         "vision_feature_select_strategy": "default"},
        ("llava", 4096, 576, (336, 336), {"shortest": 336}), 576,
    ),
    "llava-v1.6-mistral-7b-hf": (
        {"model_type": "llava_next", "image_grid_pinpoints": PINPOINTS, "image_token_index": 32000,
         "text_config": {"model_type": "mistral", "vocab_size": 32064}, "vision_config": CLIP,
         "use_image_newline_parameter": True, "vision_feature_select_strategy": "default"},
        MIDDLE | {"do_pad": True, "image_grid_pinpoints": PINPOINTS},
        {"patch_size": 14, "vision_feature_select_strategy": "default"},
        ("llava_onevision", 4096, 576, (336, 336), {"canvases": PINPOINTS, "most": 0}), 576 + 36 * 49,
    ),
    "pixtral-12b": (
        {"model_type": "llava", "image_seq_length": 1, "image_token_index": 10,
         "text_config": {"model_type": "mistral", "hidden_size": 5120, "vocab_size": 131072},
         "vision_config": {"model_type": "pixtral", "hidden_size": 1024, "image_size": 1024, "patch_size": 16},
         "vision_feature_layer": -1, "vision_feature_select_strategy": "full"},
        {"image_processor_type": "PixtralImageProcessor", "resample": 3, "patch_size": {"height": 16, "width": 16},
         "size": {"longest_edge": 1024}},
        {"image_break_token": "[IMG_BREAK]", "image_end_token": "[IMG_END]", "image_token": "[IMG]", "patch_size": 16},
        ("pixtral", 5120, 1, (16, 16),
         {"patch": 16, "merge": 1, "most": [1024, 1024], "break": "[IMG_BREAK]", "end": "[IMG_END]"}), 48 * 64,
    ),
    "llava-interleave-qwen-0.5b-hf": (
        {"model_type": "llava", "image_token_index": 151646, "text_config": {"model_type": "qwen2",
         "hidden_size": 1024}, "vision_config": {"model_type": "siglip_vision_model", "image_size": 384,
         "patch_size": 14}, "vision_feature_layer": -1, "vision_feature_select_strategy": "full"},
        {"image_processor_type": "SiglipImageProcessor", "resample": 3, "size": {"height": 384, "width": 384},
         "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]},
        {"patch_size": 14, "vision_feature_select_strategy": "full"},
        ("llava", 1024, 729, (384, 384), {"shortest": 0}), 729,
    ),
}  # fmt: skip


def settings(folder: Path, name: str, **changes: Any) -> ImageSettings:
    """Write the files of a checkpoint, but for its weights, and read them. changes: key of one of them -> other value,
    None to leave it out."""
    files = ("config.json", "preprocessor_config.json", "processor_config.json")
    for file, content in zip(files, PUBLISHED[name][:3], strict=True):
        changed = content | {key: value for key, value in changes.items() if key in content or file == "config.json"}
        (folder / file).write_text(json.dumps({key: value for key, value in changed.items() if value is not None}))
    return read_images(folder)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_files_are_read(tmp_path, name):
    found, (family, width, rows, tile, own), expected = settings(tmp_path, name), *PUBLISHED[name][3:]
    assert (found.family, found.width, found.tile_rows, found.tile) == (family, width, rows, tile)
    assert (found.settings, found.resample, found.token) == (own, "bicubic", None)
    made = FAMILIES[family](found)
    assert made.n_rows(made.grid(768, 1024)) == expected


def test_old_processors_say_one_number_for_both_sides(tmp_path):
    whole = settings(tmp_path, "llava-1.5-7b-hf")
    assert settings(tmp_path, "llava-1.5-7b-hf", size=336, crop_size=336) == whole


def test_a_class_token_that_is_kept_is_a_row(tmp_path):
    assert settings(tmp_path, "llava-1.5-7b-hf", vision_feature_select_strategy="full").tile_rows == 577


REFUSED = [
    ("llava-1.5-7b-hf", {"vision_feature_layer": [-2, -5]}, r"vision_feature_layer \[-2, -5\] in config"),
    ("llava-1.5-7b-hf", {"vision_config": {"model_type": "vitdet"}}, r"tower of type 'vitdet'.*siglip.*, pixtral"),
    ("llava-v1.6-mistral-7b-hf", {"vision_config": {"model_type": "pixtral"}}, r"type 'pixtral'.*vision_model$"),
    ("llava-1.5-7b-hf", {"crop_size": {"height": 224, "width": 224}}, r"middle of \[224, 224\], expected \[336, 336\]"),
    ("llava-1.5-7b-hf", {"size": {"shortest_edge": 224}}, "received size 224 and a middle of"),
    ("llava-1.5-7b-hf", {"do_rescale": False}, "do_rescale False"),
    ("llava-1.5-7b-hf", {"patch_size": 16}, "received patch_size 16 in processor_config.json, expected that of config"),
    ("llava-v1.6-mistral-7b-hf", {"vision_feature_select_strategy": "full"}, "'full' in config.*'default'"),
    ("llava-v1.6-mistral-7b-hf", {"do_pad": False}, "received do_pad False"),
    ("llava-v1.6-mistral-7b-hf", {"size": {"shortest_edge": 672}}, "received size 672, expected 336, as crop_size"),
    ("pixtral-12b", {"vision_feature_select_strategy": "default"}, "'default' in config.json, expected 'full'"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "changes", "said"), REFUSED)
def test_what_does_not_fit_the_tower_is_refused(tmp_path, name, changes, said):
    with pytest.raises(UnsupportedModelError, match=said):
        settings(tmp_path, name, **changes)


def test_a_decoder_of_unknown_width_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="text_config without hidden_size of type 'phi3'"):
        settings(tmp_path, "llava-1.5-7b-hf", text_config={"model_type": "phi3"})


def test_a_picture_that_would_become_very_long_is_refused(tmp_path):
    found = settings(tmp_path, "llava-1.5-7b-hf")
    with pytest.raises(PromptError, match="received a picture of 201 x 1 pixels, expected sides of at most 200 to 1"):
        FAMILIES[found.family](found).grid(1, 201)
