"""Numbers of image processors: their files, and what all families read of them, without torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from speccompile.compiler.checkpoints.json_files import CONFIG
from speccompile.errors import CheckpointError, UnsupportedModelError
from speccompile.machine.formats.image_settings import ImageSettings
from speccompile.machine.formats.json_files import read_json_object, wrong

PREPROCESSOR, PROCESSOR = "preprocessor_config.json", "processor_config.json"
PROCESSOR_FILES = (PREPROCESSOR, PROCESSOR)
"""Files with the numbers of an image processor."""

FILTERS = {1: "lanczos", 2: "bilinear", 3: "bicubic"}
"""Pillow's number of a resampling filter -> its name here."""

_HINT = "copy the checkpoint's own file beside config.json, or set target.images to false"
STANDARD, CLIP = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}, {
    "mean": (0.48145466, 0.4578275, 0.40821073), "std": (0.26862954, 0.26130258, 0.27577711),
}  # fmt: skip


def settings_of(
    family: str, folder: Path, config: Mapping[str, Any], numbers: Mapping[str, Any],
    usual: Mapping[str, tuple[float, ...]], tile: tuple[int, int], rows: int, settings: Mapping[str, Any],
) -> ImageSettings:  # fmt: skip
    """Return the settings of a family of models. usual: mean and std of its processor by default; rows: of a tile.
    Raise CheckpointError and UnsupportedModelError for what no family has."""
    token_id = config.get("image_token_id", config.get("image_token_index"))
    if type(token_id) is not int:
        raise wrong(folder / CONFIG, f"image_token_id: {token_id!r}", "the id of the placeholder for pictures")
    if (kind := numbers["resample"]) not in FILTERS:
        raise other_number(folder, f"resample {kind!r}", f"one of {FILTERS}")
    return ImageSettings(
        family, token_id, token_text(folder, token_id), int(config["text_config"]["hidden_size"]), rows, tile,
        FILTERS[kind], float(numbers.get("rescale_factor", 1 / 255)),
        tuple(map(float, numbers.get("image_mean", usual["mean"]))),
        tuple(map(float, numbers.get("image_std", usual["std"]))), settings,
    )  # fmt: skip


def processor_numbers(folder: Path) -> dict[str, Any]:
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


def token_text(folder: Path, token_id: int) -> str | None:
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


def expect_steps(folder: Path, numbers: Mapping[str, Any], **expected: bool) -> None:
    """Raise UnsupportedModelError where an image processor leaves a step out."""
    for name, value in expected.items():
        if numbers.get(name, value) is not value:
            raise other_number(folder, f"{name} {numbers[name]!r}", f"{value!r}")


def other_number(folder: Path, received: str, expected: str) -> UnsupportedModelError:
    """Return the error of an image processor that says something else than its family does."""
    return UnsupportedModelError(
        f"{folder / PREPROCESSOR}: received {received}, expected {expected}",
        hint="remove target.images: the text decoder alone is compiled",
    )


def pair(value: Any) -> tuple[int, int]:
    """Return a height and a width, of a list of both or of one number for a square."""
    height, width = value if isinstance(value, list) else (value, value)
    return int(height), int(width)


def named_text(names: Mapping[str, Any], key: str, usual: str) -> str:
    """Return the text of a token that tokenizer_config.json names, `usual` if it does not."""
    extra = names.get("extra_special_tokens")
    found = names.get(key, extra.get(key, usual) if isinstance(extra, dict) else usual)
    return str(found.get("content", usual) if isinstance(found, dict) else found)
