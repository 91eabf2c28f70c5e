"""transformers' inputs and features of a prompt with pictures, from our own pixels: what proofs compare with."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from speccompile.bundle.media import PIXELS, PLACES
from speccompile.compiler.step.monkeypatch import patched_attribute
from speccompile.runtime.images.family import Family
from speccompile.runtime.images.resize import Pixels


def pixel_inputs(family: Family, shown: Sequence[Pixels]) -> dict[str, Tensor]:
    """Return transformers' inputs for the pictures of one prompt."""
    return _INPUTS[family.images.family](family, shown)


def token_inputs(whole: nn.Module, ids: Tensor) -> dict[str, Tensor]:
    """Return transformers' inputs for a prompt int64 [1, T] beside its pixels."""
    name = _TOKEN_TYPES.get(whole.config.model_type)
    return {"input_ids": ids} | ({name: (ids == whole.config.image_token_id).long()} if name else {})


_TOKEN_TYPES = {
    "gemma3": "token_type_ids",
    **dict.fromkeys(("gemma4", "qwen2_5_vl", "qwen3_vl", "qwen3_5"), "mm_token_type_ids"),
}  # fmt: skip
"""`model_type` -> name of its input with a one at each row of a picture."""


@torch.no_grad()
def image_features(whole: nn.Module, family: Family, shown: Sequence[Pixels]) -> Tensor:
    """Return transformers' own features float32 [rows, W] of these pictures."""
    output = whole.get_image_features(**pixel_inputs(family, shown))
    joined = [torch.cat([each.reshape(-1, each.shape[-1]) for each in part]) for part in _parts_of(output)]
    return torch.cat(joined, 1)


@contextmanager
def given_rows(whole: nn.Module, rows: Tensor) -> Iterator[None]:
    """Make these rows float32 [n, W] the whole model's features of pictures inside the block."""
    own = whole.model.get_image_features

    def features(*args: Any, **settings: Any) -> Any:
        output, column = own(*args, **settings), 0
        for part in _parts_of(output):
            tensors = [each.reshape(-1, each.shape[-1]) for each in part]
            width, row = tensors[0].shape[1], 0
            for each, to in zip(part, tensors, strict=True):
                each.copy_(rows[row : row + len(to), column : column + width].reshape(each.shape))
                row += len(to)
            column += width
        return output

    with torch.no_grad(), patched_attribute(whole.model, "get_image_features", features):
        yield


def _parts_of(output: Any) -> list[list[Tensor]]:
    """Return the rows of all pictures, and for each layer that the encoder adds to, its addends: tensors by
    picture."""
    parts = output.pooler_output, *(getattr(output, "deepstack_features", None) or ())
    return [list(each) if isinstance(each, list | tuple) else [each] for each in parts]


def _tiles(family: Family, shown: Sequence[Pixels]) -> dict[str, Tensor]:
    """Return the tiles of all pictures one after the other."""
    return {"pixel_values": torch.from_numpy(np.stack([run[PIXELS] for each in shown for run in family.runs(each)]))}


def _tiles_of_a_prompt(family: Family, shown: Sequence[Pixels]) -> dict[str, Tensor]:
    """Return tiles for models that take pictures of several prompts."""
    return {name: tiles[None] for name, tiles in _tiles(family, shown).items()}


def _tiles_of_pictures(family: Family, shown: Sequence[Pixels]) -> dict[str, Tensor]:
    """Return tiles by picture, as many for each as the largest one has."""
    tiles = [_tiles(family, [each])["pixel_values"] for each in shown]
    sizes = torch.tensor([each.shape[:2] for each in shown])
    return {"pixel_values": nn.utils.rnn.pad_sequence(tiles, batch_first=True), "image_sizes": sizes}


def _patches(family: Family, shown: Sequence[Pixels]) -> dict[str, Tensor]:
    """Return the patches of all pictures one after the other, and the rows and columns of each."""
    runs = [run for each in shown for run in family.runs(each)]
    pixels = torch.from_numpy(np.concatenate([run[PIXELS] for run in runs]))
    sizes = [[1, *(run[PLACES].max(0) + 1).tolist()] for run in runs]
    return {"pixel_values": pixels, "image_grid_thw": torch.tensor(sizes)}


def _whole_pictures(family: Family, shown: Sequence[Pixels]) -> dict[str, Tensor]:
    """Return pictures as large as the largest one, put together from their patches."""
    patch = int(family.images.settings["patch"])
    drawn = [_of_patches(run[PIXELS], run[PLACES], patch) for each in shown for run in family.runs(each)]
    sizes = np.array([each.shape[1:] for each in drawn])
    pixels = np.zeros((len(drawn), 3, *sizes.max(0)), np.float32)
    for each, to in zip(drawn, pixels, strict=True):
        to[:, : each.shape[1], : each.shape[2]] = each
    return {"pixel_values": torch.from_numpy(pixels), "image_sizes": torch.from_numpy(sizes)}


def _padded_patches(family: Family, shown: Sequence[Pixels]) -> dict[str, Tensor]:
    """Return patches by picture, as many for each as its budget of rows allows, and the column and row of each."""
    runs = [run for each in shown for run in family.runs(each)]
    most = family.images.tile_rows * int(family.images.settings["merge"]) ** 2
    pixels = np.zeros((len(runs), most, runs[0][PIXELS].shape[1]), np.float32)
    places = np.full((len(runs), most, 2), -1, np.int64)
    for number, run in enumerate(runs):
        order = np.lexsort((run[PLACES][:, 1], run[PLACES][:, 0]))  # line by line
        pixels[number, : len(order)], places[number, : len(order)] = run[PIXELS][order], run[PLACES][order, ::-1]
    return {"pixel_values": torch.from_numpy(pixels), "image_position_ids": torch.from_numpy(places)}


def _padded_tiles(family: Family, shown: Sequence[Pixels]) -> dict[str, Tensor]:
    """Return patches by tile line by line, as many for each as the largest has, and rows and columns of each tile."""
    runs = [run for each in shown for run in family.runs(each)]
    shapes = np.array([run[PLACES].max(0) + 1 for run in runs])
    counts = shapes.prod(1)
    pixels = np.zeros((len(runs), counts.max(), runs[0][PIXELS].shape[1]), np.float32)
    for number, run in enumerate(runs):
        pixels[number, : counts[number]] = run[PIXELS][np.lexsort((run[PLACES][:, 1], run[PLACES][:, 0]))]
    return {
        "pixel_values": torch.from_numpy(pixels), "spatial_shapes": torch.from_numpy(shapes),
        "pixel_attention_mask": torch.from_numpy(np.arange(counts.max()) < counts[:, None]).int(),
    }  # fmt: skip


def _of_patches(pixels: NDArray[np.generic], places: NDArray[np.generic], patch: int) -> NDArray[np.generic]:
    """Return a picture float32 [3, height, width] of its patches [n, 3 * patch * patch] at these rows and columns."""
    rows, columns = places.max(0) + 1
    by_line = pixels[np.lexsort((places[:, 1], places[:, 0]))].reshape(rows, columns, 3, patch, patch)
    return by_line.transpose(2, 0, 3, 1, 4).reshape(3, rows * patch, columns * patch)


_INPUTS: dict[str, Callable[[Family, Sequence[Pixels]], dict[str, Tensor]]] = {
    "gemma3": _tiles, "gemma4": _padded_patches, "idefics3": _tiles_of_a_prompt, "internvl": _tiles,
    "lfm2_vl": _padded_tiles, "llava": _tiles, "llava_onevision": _tiles_of_pictures, "pixtral": _whole_pictures,
    "qwen_vl": _patches,
}  # fmt: skip
"""Family -> transformers' inputs for pictures."""
