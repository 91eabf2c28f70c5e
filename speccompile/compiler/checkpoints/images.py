"""Pictures of a multimodal checkpoint: the numbers of its image processor and its placeholders, without torch."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from speccompile.compiler.checkpoints.json_files import CONFIG
from speccompile.compiler.checkpoints.multimodal import text_config
from speccompile.errors import CheckpointError, UnsupportedModelError
from speccompile.machine.formats.image_settings import ImageSettings, rotary_axes
from speccompile.machine.formats.json_files import read_json_object, wrong

PREPROCESSOR, PROCESSOR = "preprocessor_config.json", "processor_config.json"
PROCESSOR_FILES = (PREPROCESSOR, PROCESSOR)
"""Files with the numbers of an image processor."""

FILTERS = {1: "lanczos", 2: "bilinear", 3: "bicubic"}
"""Pillow's number of a resampling filter -> its name here."""

_HINT = "copy the checkpoint's own file beside config.json, or set target.images to false"
_STANDARD, _CLIP = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}, {
    "mean": (0.48145466, 0.4578275, 0.40821073), "std": (0.26862954, 0.26130258, 0.27577711),
}  # fmt: skip


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
    return FAMILIES[model_type](folder, config, _processor(folder))


def _idefics3(folder: Path, config: Mapping[str, Any], given: Mapping[str, Any]) -> ImageSettings:
    """Idefics3 and SmolVLM: tiles of one size row by row, each with a token for its place, and the whole picture."""
    numbers = {"resample": 1, "size": {"longest_edge": 1456}, "max_image_size": {"longest_edge": 364}, **given}
    tile, vision = int(numbers["max_image_size"]["longest_edge"]), config["vision_config"]
    _expect(folder, numbers, do_resize=True, do_rescale=True, do_normalize=True)
    patch, scale = int(vision.get("patch_size", 32)), int(config.get("scale_factor", 2))
    if tile != vision.get("image_size", tile) or tile % (patch * scale):
        raise _other(
            folder, f"max_image_size {tile}", f"the image_size of the vision tower, {vision.get('image_size')}"
        )
    settings = {
        "longest_edge": int(numbers["size"]["longest_edge"]),
        "split": bool(numbers.get("do_image_splitting", True)),
        "around": "<fake_token_around_image>",
        "whole": "<global-img>",
    }
    return _plan("idefics3", folder, config, numbers, _STANDARD, (tile, tile), (tile // patch // scale) ** 2, settings)


def _internvl(folder: Path, config: Mapping[str, Any], given: Mapping[str, Any]) -> ImageSettings:
    """InternVL: the grid of tiles nearest to the picture's shape, and the whole picture."""
    numbers = {"resample": 3, "size": {"height": 384, "width": 384}, **given}
    _expect(folder, numbers, do_resize=True, do_rescale=True, do_normalize=True)
    tile = int(numbers["size"]["height"]), int(numbers["size"]["width"])
    vision = config["vision_config"]
    size, patch, ratio = (
        _pair(vision.get("image_size", 448)), _pair(vision.get("patch_size", 14)), config.get("downsample_ratio", 0.5)
    )  # fmt: skip
    if tile != size:
        raise _other(folder, f"size {list(tile)}", f"the image_size of the vision tower, {list(size)}")
    rows = int(tile[0] // patch[0] * ratio) * int(tile[1] // patch[1] * ratio)
    names = read_json_object(folder / "tokenizer_config.json") or {}
    settings = {
        "least": int(numbers.get("min_patches", 1)),
        "most": int(numbers.get("max_patches", 12)),
        "begin": _text(names, "start_image_token", "<img>"),
        "end": _text(names, "end_image_token", "</img>"),
    }
    return _plan("internvl", folder, config, numbers, _CLIP, tile, rows, settings)


def _gemma3(folder: Path, config: Mapping[str, Any], given: Mapping[str, Any]) -> ImageSettings:
    """Gemma 3: one square tile, whose rows see each other in both directions."""
    numbers = {"resample": 2, "size": {"height": 224, "width": 224}, **given}
    _expect(folder, numbers, do_resize=True, do_rescale=True, do_normalize=True)
    if numbers.get("do_pan_and_scan"):
        raise _other(folder, "do_pan_and_scan True", "False: crops of a picture are not compiled")
    tile = int(numbers["size"]["height"]), int(numbers["size"]["width"])
    if tile != (size := _pair(config["vision_config"].get("image_size", 224))):
        raise _other(folder, f"size {list(tile)}", f"the image_size of the vision tower, {list(size)}")
    ids = [config.get(f"{name}_index", config.get(f"{name}_id", usual)) for name, usual in _GEMMA]
    begin, end, row = (_token(folder, each) for each in ids)
    found = _plan(
        "gemma3", folder, {"image_token_id": ids[2], **config}, numbers, _STANDARD, tile,
        int(config.get("mm_tokens_per_image", 256)), {"end": end or ""},
    )  # fmt: skip
    return replace(found, token=begin, row_token=row, both_ways=True)


def _qwen_vl(folder: Path, config: Mapping[str, Any], given: Mapping[str, Any]) -> ImageSettings:
    """Qwen2.5-VL, Qwen3-VL and Qwen3.5: patches of a picture of any size; blocks of them are rows with a time, a row
    and a column."""
    vision, text = config["vision_config"], text_config(dict(config), folder) or {}
    is_third = config["model_type"] in ("qwen3_vl", "qwen3_5")
    numbers = {"resample": 3, "patch_size": 14, "merge_size": 2, "temporal_patch_size": 2, **given}
    _expect(folder, numbers, do_resize=True, do_rescale=True, do_normalize=True)
    patch, merge = int(numbers["patch_size"]), int(numbers["merge_size"])
    for name, key in (("patch_size", "patch_size"), ("merge_size", "spatial_merge_size")):
        if int(numbers[name]) != (own := vision.get(key, 2 if name == "merge_size" else 16 if is_third else 14)):
            raise _other(folder, f"{name} {numbers[name]}", f"the {key} of the vision tower, {own}")
    size = {"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 1280, **numbers.get("size", {})}
    settings = {
        "patch": patch, "merge": merge, "frames": int(numbers["temporal_patch_size"]),
        "least": int(numbers.get("min_pixels") or size["shortest_edge"]),
        "most": int(numbers.get("max_pixels") or size["longest_edge"]),
        "window": 0 if is_third else int(vision.get("window_size", 112)) // merge // patch,
        "side": int(int(vision.get("num_position_embeddings", 2304)) ** 0.5) if is_third else 0,
        "begin": _token(folder, int(config.get("vision_start_token_id", 151_652))) or "",
        "end": _token(folder, int(config.get("vision_end_token_id", 151_653))) or "",
    }  # fmt: skip
    found = _plan("qwen_vl", folder, {"image_token_id": 151_655, **config, "text_config": text}, numbers, _CLIP,
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
    """LFM2-VL: a picture in its shape, or tiles of a large one and then the whole."""
    numbers = {"resample": 2, "tile_size": 512, "encoder_patch_size": 16, "downsample_factor": 2, **given}
    _expect(folder, numbers, do_rescale=True, do_normalize=True)
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
            raise _other(folder, f"{name} {numbers[name]}", f"that of the vision tower, {own or 'whole rows'}")
    tile, whole = int(numbers["tile_size"]), read_json_object(folder / PROCESSOR) or {}
    if not whole.get("use_image_special_tokens", True):
        raise _other(folder, f"use_image_special_tokens False in {PROCESSOR}", "True")
    settings = {
        "patch": patch, "merge": merge, "side": int(int(vision.get("num_patches", 256)) ** 0.5),
        "split": bool(numbers.get("do_image_splitting", True)),
        "tiles": [int(numbers.get("min_tiles", 2)), int(numbers.get("max_tiles", 10))],
        "thumbnail": bool(numbers.get("use_thumbnail", True)),
        "least": int(numbers.get("min_image_tokens", 64)), "most": int(numbers.get("max_image_tokens", 256)),
        "large": float(numbers.get("max_pixels_tolerance", 2.0)),
        "begin": "<|image_start|>", "whole": "<|img_thumbnail|>", "end": "<|image_end|>",
    }  # fmt: skip
    return _plan("lfm2_vl", folder, {"image_token_id": 396, **config}, numbers, _STANDARD, (tile, tile),
                 (tile // patch // merge) ** 2, settings)  # fmt: skip


def _gemma4(folder: Path, config: Mapping[str, Any], given: Mapping[str, Any]) -> ImageSettings:
    """Gemma 4: patches of a picture in its shape, up to a budget of rows. In larger models rows see each
    other in both directions in layers with a window."""
    numbers = {"resample": 3, "max_soft_tokens": 280, "patch_size": 16, "pooling_kernel_size": 3, **given}
    _expect(folder, numbers, do_resize=True, do_rescale=True, do_normalize=False)
    vision, text = config["vision_config"], config["text_config"]
    for name in ("patch_size", "pooling_kernel_size"):
        if int(numbers[name]) != (own := int(vision.get(name, 3 if name == "pooling_kernel_size" else 16))):
            raise _other(folder, f"{name} {numbers[name]}", f"that of the vision tower, {own}")
    patch, merge = int(numbers["patch_size"]), int(numbers["pooling_kernel_size"])
    ids = {name: config.get(f"{name}_token_id", usual) for name, usual in _GEMMA4.items()}
    most = int(numbers["max_soft_tokens"])
    settings = {"patch": patch, "merge": merge, "most": most} | {
        key: _token(folder, ids[name]) or "" for key, name in (("begin", "boi"), ("end", "eoi"))
    }
    found = _plan(
        "gemma4", folder, {**config, "image_token_id": ids["image"]}, numbers | {"image_mean": (0.0,) * 3,
        "image_std": (1.0,) * 3}, _STANDARD, (patch * merge, patch * merge), most, settings,
    )  # fmt: skip
    is_seen = text.get("use_bidirectional_attention") == "vision"
    known = [ids[name] for name in ("image", "video", "audio") if ids[name] is not None]
    padded = *known, int(text.get("pad_token_id") or 0)
    return replace(found, both_ways=is_seen, in_windows=is_seen, padded=padded)


_GEMMA4 = {"boi": 255_999, "eoi": 258_882, "image": 258_880, "video": 258_884, "audio": 258_881}
"""Names in Gemma 4's config of the ids around a picture and of placeholders, and what they are by default."""

_SECTIONS = {"qwen2_5_vl": [16, 24, 24], "qwen3_vl": [24, 20, 20], "qwen3_5": [11, 11, 10]}
"""`model_type` -> number of rotary frequencies of each axis, by default."""


def _pixtral(folder: Path, config: Mapping[str, Any], given: Mapping[str, Any]) -> ImageSettings:
    """Mistral 3 and Pixtral: patches of a picture of any size, line by line with a token at the end of each."""
    numbers = {"resample": 3, "size": {"longest_edge": 1024}, **given}
    _expect(folder, numbers, do_resize=True, do_rescale=True, do_normalize=True)
    vision, whole = config["vision_config"], read_json_object(folder / PROCESSOR) or {}
    patch, merge = int(vision.get("patch_size", 16)), int(config.get("spatial_merge_size", 2))
    for name, own in (("patch_size", patch), ("spatial_merge_size", merge)):
        if int(whole.get(name, own)) != own:
            raise _other(folder, f"{name} {whole[name]} in {PROCESSOR}", f"that of {CONFIG}, {own}")
    size = numbers["size"]
    longest = size.get("longest_edge")
    settings = {
        "patch": patch, "merge": merge,
        "most": [int(longest or size["height"]), int(longest or size["width"])],
        "break": str(whole.get("image_break_token", "[IMG_BREAK]")),
        "end": str(whole.get("image_end_token", "[IMG_END]")),
    }  # fmt: skip
    return _plan("pixtral", folder, {"image_token_index": 10, **config}, numbers, _CLIP,
                 (patch * merge, patch * merge), 1, settings)  # fmt: skip


def _llava_onevision(folder: Path, config: Mapping[str, Any], given: Mapping[str, Any]) -> ImageSettings:
    """LLaVA-OneVision: the whole picture as a tile, and tiles of it on the canvas that shows most of it."""
    usual = [[384 * rows, 384 * columns] for rows in range(1, 7) for columns in range(1, 7)]
    numbers = {"resample": 3, "size": {"height": 384, "width": 384}, "image_grid_pinpoints": usual, **given}
    _expect(folder, numbers, do_resize=True, do_rescale=True, do_normalize=True, do_center_crop=False)
    tile, vision = (int(numbers["size"]["height"]), int(numbers["size"]["width"])), config["vision_config"]
    size, patch = int(vision.get("image_size", 384)), int(vision.get("patch_size", 14))
    canvases = [list(each) for each in numbers["image_grid_pinpoints"]]
    for received, expected, name in (
        (list(tile), [size, size], "the image_size of the vision tower"),
        (canvases, config.get("image_grid_pinpoints") or usual, f"those of {CONFIG}"),
        ([side % size for each in canvases for side in each], [0] * 2 * len(canvases), f"sides that {size} divides"),
        (config.get("vision_feature_select_strategy", "full"), "full", "vision_feature_select_strategy"),
    ):
        if received != expected:
            raise _other(folder, f"{str(received)[:60]}", f"{str(expected)[:60]}: {name}")
    ratio = str(config.get("vision_aspect_ratio", "anyres_max_9"))
    if not (most := ratio.removeprefix("anyres_max_")).isdecimal() or most == ratio:
        raise _other(folder, f"vision_aspect_ratio {ratio!r} in {CONFIG}", "anyres_max_9, or another number")
    settings = {"canvases": canvases, "most": int(most)}
    return _plan(
        "llava_onevision",
        folder,
        {"image_token_index": 151_646, **config},
        numbers,
        _CLIP,
        tile,
        (size // patch) ** 2,
        settings,
    )


_GEMMA = (("boi_token", 255_999), ("eoi_token", 256_000), ("image_token", 262_144))
"""Names in Gemma 3's config of the ids around a picture and of its rows, and what they are by default."""

FAMILIES = {
    "gemma3": _gemma3, "gemma4": _gemma4, "idefics3": _idefics3, "internvl": _internvl, "lfm2_vl": _lfm2_vl,
    "llava_onevision": _llava_onevision, "mistral3": _pixtral, "qwen2_5_vl": _qwen_vl, "qwen3_5": _qwen_vl,
    "qwen3_vl": _qwen_vl, "smolvlm": _idefics3,
}  # fmt: skip
"""`model_type` -> function that reads its pictures."""


def _plan(
    family: str, folder: Path, config: Mapping[str, Any], numbers: Mapping[str, Any],
    usual: Mapping[str, tuple[float, ...]], tile: tuple[int, int], rows: int, settings: Mapping[str, Any],
) -> ImageSettings:  # fmt: skip
    token_id = config.get("image_token_id", config.get("image_token_index"))
    if type(token_id) is not int:
        raise wrong(folder / CONFIG, f"image_token_id: {token_id!r}", "the id of the placeholder for pictures")
    if (kind := numbers["resample"]) not in FILTERS:
        raise _other(folder, f"resample {kind!r}", f"one of {FILTERS}")
    return ImageSettings(
        family, token_id, _token(folder, token_id), int(config["text_config"]["hidden_size"]), rows, tile,
        FILTERS[kind], float(numbers.get("rescale_factor", 1 / 255)),
        tuple(map(float, numbers.get("image_mean", usual["mean"]))),
        tuple(map(float, numbers.get("image_std", usual["std"]))), settings,
    )  # fmt: skip


def _processor(folder: Path) -> dict[str, Any]:
    """Return the numbers of the image processor: of its own file, or of the file for the whole processor."""
    own = read_json_object(folder / PREPROCESSOR)
    whole = (read_json_object(folder / PROCESSOR) or {}).get("image_processor")
    found = own if own is not None else whole
    if not isinstance(found, dict):
        raise CheckpointError(
            f"{folder}: received a folder without {PREPROCESSOR}, expected the numbers of the image processor, for "
            "target.images",
            hint=_HINT,
        )
    return found


def _token(folder: Path, token_id: int) -> str | None:
    """Return the text of a token by tokenizer.json, None without the file."""
    tokenizer = read_json_object(folder / "tokenizer.json")
    if tokenizer is None:
        return None
    added = {each.get("id"): each.get("content") for each in tokenizer.get("added_tokens", ())}
    if not isinstance(text := added.get(token_id), str):
        raise CheckpointError(
            f"{folder / 'tokenizer.json'}: received no added token with the id {token_id}, expected the placeholder "
            f"for pictures, as {CONFIG} says",
            hint="check that tokenizer.json belongs to these weights",
        )
    return text


def _expect(folder: Path, numbers: Mapping[str, Any], **expected: bool) -> None:
    """Raise UnsupportedModelError where an image processor leaves a step out."""
    for name, value in expected.items():
        if numbers.get(name, value) is not value:
            raise _other(folder, f"{name} {numbers[name]!r}", f"{value!r}")


def _other(folder: Path, received: str, expected: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{folder / PREPROCESSOR}: received {received}, expected {expected}",
        hint="remove target.images: the text decoder alone is compiled",
    )


def _pair(value: Any) -> tuple[int, int]:
    height, width = value if isinstance(value, list) else (value, value)
    return int(height), int(width)


def _text(names: Mapping[str, Any], key: str, usual: str) -> str:
    extra = names.get("extra_special_tokens")
    found = names.get(key, extra.get(key, usual) if isinstance(extra, dict) else usual)
    return str(found.get("content", usual) if isinstance(found, dict) else found)
