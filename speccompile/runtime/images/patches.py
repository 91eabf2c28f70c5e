"""Families whose pictures keep their shape: patches of a picture of any size, merged in blocks to rows."""

from math import ceil, floor, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from speccompile.bundle.media import NEAR, PIXELS, PLACES, WEIGHTS, WINDOWS
from speccompile.errors import PromptError
from speccompile.runtime.images.family import EncoderRun, Family, Grid
from speccompile.runtime.images.resize import Pixels

_NARROWEST = 200
"""Longest side of a picture, in units of the other."""


class QwenVL(Family):
    """Qwen2.5-VL and Qwen3-VL. Both sides become multiples of a block of patches, the area lies between two limits.

    The encoder reads a picture in one run: its patches, block by block, with the place of each in the picture.
    """

    def __init__(self, images: Any) -> None:
        super().__init__(images)
        self._patch, self._merge = int(images.settings["patch"]), int(images.settings["merge"])

    def grid(self, height: int, width: int) -> Grid:
        if max(height, width) > _NARROWEST * min(height, width):
            raise PromptError(
                f"received a picture of {width} x {height} pixels, expected sides of at most {_NARROWEST} to 1",
                hint="crop the picture",
            )
        side, least, most = self._patch * self._merge, self.images.settings["least"], self.images.settings["most"]
        rows, columns = round(height / side), round(width / side)
        if rows * columns * side**2 > most:
            shrink = sqrt(height * width / most)
            rows, columns = (max(1, floor(each / shrink / side)) for each in (height, width))
        elif rows * columns * side**2 < least:
            grow = sqrt(least / (height * width))
            rows, columns = (ceil(each * grow / side) for each in (height, width))
        return Grid(rows, columns, whole=False)

    def n_rows(self, grid: Grid) -> int:
        return grid.n_tiles

    def text(self, grid: Grid) -> str:
        return (self.images.token or "") * grid.n_tiles

    @property
    def alone(self) -> str:
        settings = self.images.settings
        return f"{settings['begin']}{self.images.token}{settings['end']}"

    def runs(self, image: Pixels) -> list[EncoderRun]:
        grid, settings = self.grid(*image.shape[:2]), self.images.settings
        places, sizes = self._places(grid), (grid.rows * self._merge, grid.columns * self._merge)
        found: EncoderRun = {PIXELS: self._patches(image, grid), PLACES: places}
        if window := int(settings["window"]):
            blocks = places // (self._merge * window)
            found[WINDOWS] = blocks[:, 0] * (blocks[:, 1].max() + 1) + blocks[:, 1]
        if side := int(settings["side"]):
            found[NEAR], found[WEIGHTS] = _near(places, sizes, side)
        return [found]

    def _patches(self, image: Pixels, grid: Grid) -> NDArray[np.float32]:
        """Return float32 [patches, 3 * frames * patch * patch], block by block; a picture stands still in time."""
        side, patch, merge, frames = self._patch * self._merge, self._patch, self._merge, self.images.settings["frames"]
        pixels = self.normalized(self._resized(image, grid.rows * side, grid.columns * side))
        cut = pixels.reshape(grid.rows, merge, patch, grid.columns, merge, patch, 3).transpose(0, 3, 1, 4, 6, 2, 5)
        still = np.broadcast_to(cut[:, :, :, :, :, None], (*cut.shape[:5], frames, patch, patch))
        return np.ascontiguousarray(still).reshape(grid.n_tiles * merge**2, -1)

    def _places(self, grid: Grid) -> NDArray[np.int64]:
        """Return row and column of each patch in the picture, int64 [patches, 2], block by block."""
        merge = self._merge
        rows, columns = np.mgrid[: grid.rows * merge, : grid.columns * merge]
        both = np.stack([rows, columns], 2).reshape(grid.rows, merge, grid.columns, merge, 2)
        return np.ascontiguousarray(both.transpose(0, 2, 1, 3, 4).reshape(-1, 2)).astype(np.int64)


def _near(
    places: NDArray[np.int64], sizes: tuple[int, int], side: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return which four entries of a square table of positions lie around each patch, and their weights: int64 and
    float32 [patches, 4]. The table is stretched over the picture, corner to corner."""
    taps, weights = [], []
    for axis, size in enumerate(sizes):
        found = places[:, axis].astype(np.float32) * np.float32(side - 1) / np.float32(max(size - 1, 1))
        low = np.floor(found)
        both = low.astype(np.int64)[:, None] + np.arange(2)
        taps.append(both.clip(0, side - 1))
        away = np.abs((found - low)[:, None] - np.arange(2, dtype=np.float32))
        weights.append((1 - away).clip(min=0).astype(np.float32))
    near = (taps[0][:, :, None] * side + taps[1][:, None, :]).reshape(-1, 4)
    return near, (weights[0][:, :, None] * weights[1][:, None, :]).reshape(-1, 4)
