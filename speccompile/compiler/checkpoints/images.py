"""Pictures of a multimodal checkpoint: the numbers of its image processor and its placeholders, without torch."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from speccompile.compiler.checkpoints.json_files import CONFIG
from speccompile.compiler.checkpoints.multimodal import text_config
from speccompile.errors import CheckpointError, UnsupportedModelError
from speccompile.machine.formats.image_settings import ImageSettings
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
    """Qwen2.5-VL and Qwen3-VL: patches of a picture of any size; blocks of them are rows with a time, a row and a
    column."""
    vision, text = config["vision_config"], text_config(dict(config), folder) or {}
    is_third = config["model_type"] == "qwen3_vl"
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
    stacked = len(vision.get("deepstack_visual_indexes", [8, 16, 24])) if is_third else 0
    return replace(found, width=found.width * (1 + stacked), axes=_axes(config, is_third), stacked=stacked)


def _axes(config: Mapping[str, Any], is_interleaved: bool) -> tuple[int, ...]:
    """Return the axis of each rotary frequency: sections of them one after the other, or in turn."""
    text = config.get("text_config") or config
    rope = text.get("rope_parameters") or text.get("rope_scaling") or {}
    sections = list(rope.get("mrope_section") or ([24, 20, 20] if is_interleaved else [16, 24, 24]))
    if not is_interleaved:
        return tuple(axis for axis, count in enumerate(sections) for _ in range(count))
    places = range(sum(sections))
    return tuple(place % 3 if place % 3 and place < 3 * sections[place % 3] else 0 for place in places)


_GEMMA = (("boi_token", 255_999), ("eoi_token", 256_000), ("image_token", 262_144))
"""Names in Gemma 3's config of the ids around a picture and of its rows, and what they are by default."""

FAMILIES = {
    "gemma3": _gemma3, "idefics3": _idefics3, "smolvlm": _idefics3, "internvl": _internvl, "qwen2_5_vl": _qwen_vl,
    "qwen3_vl": _qwen_vl,
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
