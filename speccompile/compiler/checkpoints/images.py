"""Pictures of a multimodal checkpoint: the numbers of its image processor and its placeholders, without torch."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from speccompile.compiler.checkpoints.image_numbers import (
    CLIP,
    PROCESSOR,
    STANDARD,
    expect_steps,
    named_text,
    other_number,
    pair,
    processor_numbers,
    settings_of,
    token_text,
)
from speccompile.compiler.checkpoints.json_files import CONFIG
from speccompile.compiler.checkpoints.llava_images import (
    read_llava,
    read_llava_next,
    read_llava_onevision,
    read_pixtral,
)
from speccompile.compiler.checkpoints.multimodal import text_config
from speccompile.errors import UnsupportedModelError
from speccompile.machine.formats.image_settings import ImageSettings, rotary_axes
from speccompile.machine.formats.json_files import read_json_object


def read_images(folder: Path) -> ImageSettings:
    """Return how a checkpoint's pictures are prepared. Raise UnsupportedModelError for a model whose pictures are not
    compiled, CheckpointError for files that are missing or that say something else than the family does."""
    config = read_json_object(folder / CONFIG) or {}
    model_type = config.get("model_type")
    if model_type not in FAMILIES:
        raise UnsupportedModelError(
            f"{folder / CONFIG}: received target.images for a model of type {model_type!r}, expected one of "
            f"{', '.join(FAMILIES)}, whose pictures are compiled",
            hint="remove target.images: the text decoder alone is compiled",
        )
    return FAMILIES[model_type](folder, config, processor_numbers(folder))


def _idefics3(folder: Path, config: Mapping[str, Any], given: Mapping[str, Any]) -> ImageSettings:
    """Return settings of Idefics3 and SmolVLM: tiles of one size row by row, each with a token for its
    place, and the whole picture."""
    numbers = {"resample": 1, "size": {"longest_edge": 1456}, "max_image_size": {"longest_edge": 364}, **given}
    tile, vision = int(numbers["max_image_size"]["longest_edge"]), config["vision_config"]
    expect_steps(folder, numbers, do_resize=True, do_rescale=True, do_normalize=True)
    patch, scale = int(vision.get("patch_size", 32)), int(config.get("scale_factor", 2))
    if tile != vision.get("image_size", tile) or tile % (patch * scale):
        raise other_number(
            folder, f"max_image_size {tile}", f"the image_size of the vision tower, {vision.get('image_size')}"
        )
    settings = {
        "longest_edge": int(numbers["size"]["longest_edge"]),
        "split": bool(numbers.get("do_image_splitting", True)),
        "around": "<fake_token_around_image>",
        "whole": "<global-img>",
    }
    return settings_of(
        "idefics3", folder, config, numbers, STANDARD, (tile, tile), (tile // patch // scale) ** 2, settings
    )


def _internvl(folder: Path, config: Mapping[str, Any], given: Mapping[str, Any]) -> ImageSettings:
    """Return settings of InternVL: the grid of tiles nearest to the picture's shape, and the whole picture."""
    numbers = {"resample": 3, "size": {"height": 384, "width": 384}, **given}
    expect_steps(folder, numbers, do_resize=True, do_rescale=True, do_normalize=True)
    tile = int(numbers["size"]["height"]), int(numbers["size"]["width"])
    vision = config["vision_config"]
    size, patch, ratio = (
        pair(vision.get("image_size", 448)), pair(vision.get("patch_size", 14)), config.get("downsample_ratio", 0.5)
    )  # fmt: skip
    if tile != size:
        raise other_number(folder, f"size {list(tile)}", f"the image_size of the vision tower, {list(size)}")
    rows = int(tile[0] // patch[0] * ratio) * int(tile[1] // patch[1] * ratio)
    names = read_json_object(folder / "tokenizer_config.json") or {}
    settings = {
        "least": int(numbers.get("min_patches", 1)),
        "most": int(numbers.get("max_patches", 12)),
        "begin": named_text(names, "start_image_token", "<img>"),
        "end": named_text(names, "end_image_token", "</img>"),
    }
    return settings_of("internvl", folder, config, numbers, CLIP, tile, rows, settings)


def _gemma3(folder: Path, config: Mapping[str, Any], given: Mapping[str, Any]) -> ImageSettings:
    """Read Gemma 3: one square tile, whose rows see each other in both directions."""
    numbers = {"resample": 2, "size": {"height": 224, "width": 224}, **given}
    expect_steps(folder, numbers, do_resize=True, do_rescale=True, do_normalize=True)
    if numbers.get("do_pan_and_scan"):
        raise other_number(folder, "do_pan_and_scan True", "False: crops of a picture are not compiled")
    tile = int(numbers["size"]["height"]), int(numbers["size"]["width"])
    if tile != (size := pair(config["vision_config"].get("image_size", 224))):
        raise other_number(folder, f"size {list(tile)}", f"the image_size of the vision tower, {list(size)}")
    ids = [config.get(f"{name}_index", config.get(f"{name}_id", usual)) for name, usual in _GEMMA]
    begin, end, row = (token_text(folder, each) for each in ids)
    found = settings_of(
        "gemma3", folder, {"image_token_id": ids[2], **config}, numbers, STANDARD, tile,
        int(config.get("mm_tokens_per_image", 256)), {"end": end or ""},
    )  # fmt: skip
    return replace(found, token=begin, row_token=row, both_ways=True)


def _qwen_vl(folder: Path, config: Mapping[str, Any], given: Mapping[str, Any]) -> ImageSettings:
    """Return settings of Qwen2.5-VL, Qwen3-VL and Qwen3.5: patches of a picture of any size, whose blocks are rows with
    a time, a row and a column."""
    vision, text = config["vision_config"], text_config(dict(config), folder) or {}
    is_third = config["model_type"] in ("qwen3_vl", "qwen3_5")
    numbers = {"resample": 3, "patch_size": 14, "merge_size": 2, "temporal_patch_size": 2, **given}
    expect_steps(folder, numbers, do_resize=True, do_rescale=True, do_normalize=True)
    patch, merge = int(numbers["patch_size"]), int(numbers["merge_size"])
    for name, key in (("patch_size", "patch_size"), ("merge_size", "spatial_merge_size")):
        if int(numbers[name]) != (own := vision.get(key, 2 if name == "merge_size" else 16 if is_third else 14)):
            raise other_number(folder, f"{name} {numbers[name]}", f"the {key} of the vision tower, {own}")
    size = {"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 1280, **numbers.get("size", {})}
    settings = {
        "patch": patch, "merge": merge, "frames": int(numbers["temporal_patch_size"]),
        "least": int(numbers.get("min_pixels") or size["shortest_edge"]),
        "most": int(numbers.get("max_pixels") or size["longest_edge"]),
        "window": 0 if is_third else int(vision.get("window_size", 112)) // merge // patch,
        "side": int(int(vision.get("num_position_embeddings", 2304)) ** 0.5) if is_third else 0,
        "begin": token_text(folder, int(config.get("vision_start_token_id", 151_652))) or "",
        "end": token_text(folder, int(config.get("vision_end_token_id", 151_653))) or "",
    }  # fmt: skip
    found = settings_of("qwen_vl", folder, {"image_token_id": 151_655, **config, "text_config": text}, numbers, CLIP,
                  (patch * merge, patch * merge), 1, settings)  # fmt: skip
    stacked = len(vision.get("deepstack_visual_indexes", [8, 16, 24])) if config["model_type"] == "qwen3_vl" else 0
    return replace(found, width=found.width * (1 + stacked), axes=_axes(config, is_third), stacked=stacked)


def _axes(config: Mapping[str, Any], is_interleaved: bool) -> tuple[int, ...]:
    """Return the axis of each rotary frequency."""
    text = config.get("text_config") or config
    rope = text.get("rope_parameters") or text.get("rope_scaling") or {}
    sections = list(rope.get("mrope_section") or _SECTIONS[str(config["model_type"])])
    return rotary_axes(sections, interleaved=is_interleaved)


def _lfm2_vl(folder: Path, config: Mapping[str, Any], given: Mapping[str, Any]) -> ImageSettings:
    """Return settings of LFM2-VL: a picture in its shape, or tiles of a large one and then the whole."""
    numbers = {"resample": 2, "tile_size": 512, "encoder_patch_size": 16, "downsample_factor": 2, **given}
    expect_steps(folder, numbers, do_rescale=True, do_normalize=True)
    vision, patch, merge = (
        config["vision_config"],
        int(numbers["encoder_patch_size"]),
        int(numbers["downsample_factor"]),
    )
    for name, received, own in (
        ("encoder_patch_size", patch, int(vision.get("patch_size", 16))),
        ("downsample_factor", merge, int(config.get("downsample_factor", 2))),
        ("tile_size", int(numbers["tile_size"]) % (patch * merge), 0),
    ):
        if received != own:
            raise other_number(folder, f"{name} {numbers[name]}", f"that of the vision tower, {own or 'whole rows'}")
    tile, whole = int(numbers["tile_size"]), read_json_object(folder / PROCESSOR) or {}
    if not whole.get("use_image_special_tokens", True):
        raise other_number(folder, f"use_image_special_tokens False in {PROCESSOR}", "True")
    settings = {
        "patch": patch, "merge": merge, "side": int(int(vision.get("num_patches", 256)) ** 0.5),
        "split": bool(numbers.get("do_image_splitting", True)),
        "grids": _lfm2_grids(int(numbers.get("min_tiles", 2)), int(numbers.get("max_tiles", 10))),
        "thumbnail": bool(numbers.get("use_thumbnail", True)),
        "least": int(numbers.get("min_image_tokens", 64)), "most": int(numbers.get("max_image_tokens", 256)),
        "large": float(numbers.get("max_pixels_tolerance", 2.0)),
        "begin": "<|image_start|>", "whole": "<|img_thumbnail|>", "end": "<|image_end|>",
    }  # fmt: skip
    return settings_of("lfm2_vl", folder, {"image_token_id": 396, **config}, numbers, STANDARD, (tile, tile),
                 (tile // patch // merge) ** 2, settings)  # fmt: skip


def _lfm2_grids(least: int, most: int) -> list[list[int]]:
    """Return the columns and rows of the grids of so many tiles. A set first, as transformers does: it gives the order
    of grids with equally many tiles."""
    sizes = range(1, most + 1)
    grids = {(w, h) for n in range(least, most + 1) for w in sizes[:n] for h in sizes[:n] if least <= w * h <= most}
    return [list(each) for each in sorted(grids, key=lambda each: each[0] * each[1])]


def _gemma4(folder: Path, config: Mapping[str, Any], given: Mapping[str, Any]) -> ImageSettings:
    """Read Gemma 4: patches of a picture in its shape, up to a budget of rows. In larger models rows see each
    other in both directions in layers with a window."""
    numbers = {"resample": 3, "max_soft_tokens": 280, "patch_size": 16, "pooling_kernel_size": 3, **given}
    expect_steps(folder, numbers, do_resize=True, do_rescale=True, do_normalize=False)
    vision, text = config["vision_config"], config["text_config"]
    for name in ("patch_size", "pooling_kernel_size"):
        if int(numbers[name]) != (own := int(vision.get(name, 3 if name == "pooling_kernel_size" else 16))):
            raise other_number(folder, f"{name} {numbers[name]}", f"that of the vision tower, {own}")
    patch, merge = int(numbers["patch_size"]), int(numbers["pooling_kernel_size"])
    ids = {name: config.get(f"{name}_token_id", usual) for name, usual in _GEMMA4.items()}
    most = int(numbers["max_soft_tokens"])
    settings = {
        "patch": patch,
        "merge": merge,
        "most": most,
        "places": int(vision.get("position_embedding_size", 10240)),
    } | {key: token_text(folder, ids[name]) or "" for key, name in (("begin", "boi"), ("end", "eoi"))}
    found = settings_of(
        "gemma4", folder, {**config, "image_token_id": ids["image"]}, numbers | {"image_mean": (0.0,) * 3,
        "image_std": (1.0,) * 3}, STANDARD, (patch * merge, patch * merge), most, settings,
    )  # fmt: skip
    is_seen = text.get("use_bidirectional_attention") == "vision"
    known = [ids[name] for name in ("image", "video", "audio") if ids[name] is not None]
    padded = *known, int(text.get("pad_token_id") or 0)
    return replace(found, both_ways=is_seen, in_windows=is_seen, padded=padded)


_GEMMA4 = {"boi": 255_999, "eoi": 258_882, "image": 258_880, "video": 258_884, "audio": 258_881}
"""Names in Gemma 4's config of the ids around a picture and of placeholders, with their defaults."""

_SECTIONS = {"qwen2_5_vl": [16, 24, 24], "qwen3_vl": [24, 20, 20], "qwen3_5": [11, 11, 10]}
"""`model_type` -> number of rotary frequencies of each axis, by default."""


_GEMMA = (("boi_token", 255_999), ("eoi_token", 256_000), ("image_token", 262_144))
"""Names in Gemma 3's config of the ids around a picture and of its rows, with their defaults."""

FAMILIES = {
    "gemma3": _gemma3, "gemma4": _gemma4, "idefics3": _idefics3, "internvl": _internvl, "lfm2_vl": _lfm2_vl,
    "llava": read_llava, "llava_next": read_llava_next, "llava_onevision": read_llava_onevision,
    "mistral3": read_pixtral, "qwen2_5_vl": _qwen_vl, "qwen3_5": _qwen_vl, "qwen3_vl": _qwen_vl, "smolvlm": _idefics3,
}  # fmt: skip
"""`model_type` -> function that reads its pictures."""
