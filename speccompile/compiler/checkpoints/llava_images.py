"""Pictures of the LLaVA family: LLaVA 1.5, LLaVA-NeXT and LLaVA-OneVision, Pixtral and Mistral 3, without torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from speccompile.compiler.checkpoints.image_numbers import (
    CLIP,
    PROCESSOR,
    STANDARD,
    expect_steps,
    other_number,
    settings_of,
)
from speccompile.compiler.checkpoints.json_files import CONFIG
from speccompile.machine.formats.image_settings import ImageSettings
from speccompile.machine.formats.json_files import read_json_object, wrong

_TOWERS = {"clip_vision_model": (224, 32, CLIP), "siglip_vision_model": (224, 16, STANDARD)}
"""`model_type` of a tower -> its image_size and patch_size by default, and its processor's mean and std."""

_DECODERS = ("llama", "mistral", "qwen2")
"""Decoders whose width transformers takes to be 4096 where config.json, as LLaVA 1.5's, does not say it."""


def read_llava(folder: Path, config: Mapping[str, Any], given: Mapping[str, Any]) -> ImageSettings:
    """Return the settings of LLaVA 1.5 and models like it: a picture of any shape becomes one tile, for CLIP's towers
    its middle. Also those of Pixtral 12B in transformers' form, a `llava` with Pixtral's tower."""
    config = _with_width(folder, config)
    if config["vision_config"].get("model_type") == "pixtral":
        _check_selection(folder, config, "full")
        return read_pixtral(folder, {**config, "spatial_merge_size": 1}, given)
    size, patch, usual = _tower(folder, config)
    numbers = {"resample": 3, "size": {"shortest_edge": 224}, "crop_size": {"height": 224, "width": 224}, **given}
    expect_steps(folder, numbers, do_resize=True, do_rescale=True, do_normalize=True)
    shortest, tile = _middle(numbers)
    if tile != (size, size) or (shortest and shortest < size):
        received = f"size {shortest or list(tile)} and a middle of {list(tile)}"
        raise other_number(folder, received, f"{[size, size]}, the image_size of the vision tower")
    has_class = config["vision_config"].get("model_type") == "clip_vision_model"
    selection = config.get("vision_feature_select_strategy", "default")
    _check_processor(folder, vision_feature_select_strategy=selection, patch_size=patch)
    rows = (size // patch) ** 2 + has_class - (selection == "default")
    config = {"image_token_index": 32_000, **config}
    return settings_of("llava", folder, config, numbers, usual, tile, rows, {"shortest": shortest})


def read_llava_next(folder: Path, config: Mapping[str, Any], given: Mapping[str, Any]) -> ImageSettings:
    """Return the settings of LLaVA-NeXT (1.6): as LLaVA-OneVision, with another tower, and no limit on tiles."""
    config = {"image_token_index": 32_000, **_with_width(folder, config)}
    size, patch, usual = _tower(folder, config)
    numbers = {"resample": 3, "size": {"shortest_edge": 224}, "crop_size": {"height": 224, "width": 224},
               "image_grid_pinpoints": _CANVASES, **given}  # fmt: skip
    expect_steps(folder, numbers, do_resize=True, do_rescale=True, do_normalize=True, do_pad=True)
    shortest, tile = _middle(numbers)
    _check_selection(folder, config, "default" if usual is CLIP else "full")
    _check_processor(folder, vision_feature_select_strategy=config.get("vision_feature_select_strategy", "default"),
                     patch_size=patch)  # fmt: skip
    if shortest not in (0, tile[0]):
        raise other_number(folder, f"size {shortest}", f"{tile[0]}, as crop_size")
    canvases = _checked_canvases(folder, numbers, config.get("image_grid_pinpoints") or _CANVASES, tile, size)
    settings = {"canvases": canvases, "most": 0}
    return settings_of("llava_onevision", folder, config, numbers, usual, tile, (size // patch) ** 2, settings)


def read_llava_onevision(folder: Path, config: Mapping[str, Any], given: Mapping[str, Any]) -> ImageSettings:
    """Return the settings of LLaVA-OneVision: the whole picture as one tile, and tiles of the canvas that fits best."""
    usual = [[384 * rows, 384 * columns] for rows in range(1, 7) for columns in range(1, 7)]
    numbers = {"resample": 3, "size": {"height": 384, "width": 384}, "image_grid_pinpoints": usual, **given}
    expect_steps(folder, numbers, do_resize=True, do_rescale=True, do_normalize=True, do_center_crop=False)
    tile, vision = (int(numbers["size"]["height"]), int(numbers["size"]["width"])), config["vision_config"]
    size, patch = int(vision.get("image_size", 384)), int(vision.get("patch_size", 14))
    canvases = _checked_canvases(folder, numbers, config.get("image_grid_pinpoints") or usual, tile, size)
    _check_selection(folder, {"vision_feature_select_strategy": "full", **config}, "full")
    ratio = str(config.get("vision_aspect_ratio", "anyres_max_9"))
    if not (most := ratio.removeprefix("anyres_max_")).isdecimal() or most == ratio or not int(most):
        raise other_number(folder, f"vision_aspect_ratio {ratio!r} in {CONFIG}", "anyres_max_9, or another number")
    settings, config = {"canvases": canvases, "most": int(most)}, {"image_token_index": 151_646, **config}
    return settings_of("llava_onevision", folder, config, numbers, CLIP, tile, (size // patch) ** 2, settings)


def read_pixtral(folder: Path, config: Mapping[str, Any], given: Mapping[str, Any]) -> ImageSettings:
    """Return the settings of Mistral 3 and Pixtral: patches of a picture of any size, with a token after each line."""
    numbers = {"resample": 3, "size": {"longest_edge": 1024}, **given}
    expect_steps(folder, numbers, do_resize=True, do_rescale=True, do_normalize=True)
    patch, merge = int(config["vision_config"].get("patch_size", 16)), int(config.get("spatial_merge_size", 2))
    whole = _check_processor(folder, patch_size=patch, spatial_merge_size=merge)
    size = numbers["size"]
    longest = size.get("longest_edge")
    settings = {
        "patch": patch, "merge": merge,
        "most": [int(longest or size["height"]), int(longest or size["width"])],
        "break": str(whole.get("image_break_token", "[IMG_BREAK]")),
        "end": str(whole.get("image_end_token", "[IMG_END]")),
    }  # fmt: skip
    tile, config = (patch * merge, patch * merge), {"image_token_index": 10, **config}
    return settings_of("pixtral", folder, config, numbers, CLIP, tile, 1, settings)


_CANVASES = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]
"""Canvases of LLaVA-NeXT, by default."""


def _with_width(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config whose decoder says its width."""
    text = {"model_type": "llama", **config["text_config"]}
    if "hidden_size" not in text:
        if text["model_type"] not in _DECODERS:
            raise wrong(folder / CONFIG, f"text_config without hidden_size of type {text['model_type']!r}", "its width")
        text["hidden_size"] = 4096
    return {**config, "text_config": text}


def _tower(folder: Path, config: Mapping[str, Any]) -> tuple[int, int, Mapping[str, tuple[float, ...]]]:
    """Return image_size and patch_size of a vision tower, and its processor's mean and std. Raise UnsupportedModelError
    for another tower, or features of several of its layers."""
    vision = config["vision_config"]
    if (kind := vision.get("model_type")) not in _TOWERS:
        known = f"one of {', '.join(_TOWERS)}" + (", pixtral" if config.get("model_type") == "llava" else "")
        raise other_number(folder, f"a vision tower of type {kind!r} in {CONFIG}", known)
    if type(layer := config.get("vision_feature_layer", -2)) is not int:
        raise other_number(folder, f"vision_feature_layer {layer!r} in {CONFIG}", "one layer")
    size, patch, usual = _TOWERS[kind]
    return int(vision.get("image_size", size)), int(vision.get("patch_size", patch)), usual


def _middle(numbers: Mapping[str, Any]) -> tuple[int, tuple[int, int]]:
    """Return (shortest, tile) in pixels: size of the shortest side before the middle is cut out, 0 if nothing is cut;
    height and width of the tile."""
    size, crop = (
        {name: each, "height": each, "width": each} if isinstance(each, int) else each
        for name, each in (("shortest_edge", numbers["size"]), ("side", numbers["crop_size"]))
    )
    shortest = int(size.get("shortest_edge") or 0)
    tile = crop if shortest and numbers.get("do_center_crop", True) else size
    return shortest, (int(tile.get("height", shortest)), int(tile.get("width", shortest)))


def _checked_canvases(
    folder: Path, numbers: Mapping[str, Any], own: list[Any], tile: tuple[int, int], size: int
) -> list[list[int]]:
    """Return the canvases of an image processor. Raise UnsupportedModelError if the tower takes others, or no tiles of
    them. own: those of config.json; size: image_size of the tower."""
    canvases = [list(each) for each in numbers["image_grid_pinpoints"]]
    for received, expected, name in (
        (list(tile), [size, size], "the image_size of the vision tower"),
        (canvases, [list(each) for each in own], f"those of {CONFIG}"),
        ([side % size for each in canvases for side in each], [0] * 2 * len(canvases), f"sides that {size} divides"),
    ):
        if received != expected:
            raise other_number(folder, f"{str(received)[:60]}", f"{str(expected)[:60]}: {name}")
    return canvases


def _check_selection(folder: Path, config: Mapping[str, Any], expected: str) -> None:
    """Raise UnsupportedModelError if a model takes other features of its tower's than its family does."""
    if (received := config.get("vision_feature_select_strategy", "default")) != expected:
        raise other_number(folder, f"vision_feature_select_strategy {received!r} in {CONFIG}", f"{expected!r}")


def _check_processor(folder: Path, **expected: Any) -> dict[str, Any]:
    """Return the file of the whole processor. Raise UnsupportedModelError where it says something else."""
    whole = read_json_object(folder / PROCESSOR) or {}
    for name, own in expected.items():
        if (received := whole.get(name, own)) not in (own, None):
            raise other_number(folder, f"{name} {received} in {PROCESSOR}", f"that of {CONFIG}, {own}")
    return whole
