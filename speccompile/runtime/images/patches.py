"""Families whose pictures keep their shape: patches of a picture of any size, merged in blocks to rows."""

from collections.abc import Sequence
from math import ceil, floor, isqrt, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from speccompile.bundle.media import NEAR, PIXELS, PLACES, WEIGHTS, WINDOWS
from speccompile.errors import PromptError
from speccompile.runtime.images.family import NARROWEST, EncoderRun, Family, Grid, Tile, check_shape
from speccompile.runtime.images.limits import LOW_SIDE
from speccompile.runtime.images.resize import Pixels

_LOW_ROWS = 70
"""Least budget of rows of Gemma 4."""


class PatchFamily(Family):
    """Pictures as patches, `merge` x `merge` of which make a row."""

    def __init__(self, images: Any) -> None:
        super().__init__(images)
        self._patch, self._merge = int(images.settings["patch"]), int(images.settings["merge"])

    def n_rows(self, grid: Grid) -> int:
        return grid.n_tiles

    def runs(self, image: Pixels) -> list[EncoderRun]:
        """Return one run over all patches, block by block, with the place of each in the picture."""
        grid = self.grid(*image.shape[:2])
        side = self._patch * self._merge
        pixels = self.normalized(self._resized(image, grid.rows * side, grid.columns * side))
        return [{PIXELS: self._cut(pixels), PLACES: patch_positions(grid, self._merge)}]

    def _cut(self, pixels: Tile) -> Tile:
        """Return the patches of normalized pixels as the tower reads them."""
        return blocks_of(pixels, self._patch, self._merge)


def blocks_of(pixels: Tile, patch: int, merge: int, *, channels_last: bool = False) -> Tile:
    """Return the patches of normalized pixels float32 [height, width, 3], block by block, float32 [patches, 3 * patch *
    patch]. channels_last: their pixels one after the other, else their channels."""
    side = patch * merge
    rows, columns = pixels.shape[0] // side, pixels.shape[1] // side
    cut = pixels.reshape(rows, merge, patch, columns, merge, patch, 3).transpose(0, 3, 1, 4, 2, 5, 6)
    cut = cut if channels_last else np.moveaxis(cut, 6, 4)
    return np.ascontiguousarray(cut).reshape(rows * columns * merge**2, -1)


def patch_positions(grid: Grid, merge: int) -> NDArray[np.int64]:
    """Return row and column of each patch in the picture, int64 [patches, 2], block by block."""
    rows, columns = np.mgrid[: grid.rows * merge, : grid.columns * merge]
    both = np.stack([rows, columns], 2).reshape(grid.rows, merge, grid.columns, merge, 2)
    return np.ascontiguousarray(both.transpose(0, 2, 1, 3, 4).reshape(-1, 2)).astype(np.int64)


class QwenVL(PatchFamily):
    """Qwen2.5-VL, Qwen3-VL and Qwen3.5. Both sides become multiples of a block of patches, the area lies between two
    limits. The encoder reads a picture in one run."""

    def low_settings(self) -> dict[str, Any]:
        most = min(self.images.settings["most"], LOW_SIDE**2)
        return {"most": most, "least": min(self.images.settings["least"], most)}

    def grid(self, height: int, width: int) -> Grid:
        check_shape(height, width)
        side, least, most = self._patch * self._merge, self.images.settings["least"], self.images.settings["most"]
        rows, columns = round(height / side), round(width / side)
        if rows * columns * side**2 > most:
            shrink = sqrt(height * width / most)
            rows, columns = (max(1, floor(each / shrink / side)) for each in (height, width))
        elif rows * columns * side**2 < least:
            grow = sqrt(least / (height * width))
            rows, columns = (ceil(each * grow / side) for each in (height, width))
        return Grid(rows, columns, whole=False)

    def most_rows(self) -> int:
        """Return the area's limit in rows, and how many more an enlarged or a very narrow picture may have."""
        limit = max(int(self.images.settings["most"]), int(self.images.settings["least"]))
        area = limit // (self._patch * self._merge) ** 2
        return area + (isqrt(NARROWEST) + 1) * (isqrt(area) + 1)

    def _cut(self, pixels: Tile) -> Tile:
        """Return patches that stand still in time."""
        cut, frames = super()._cut(pixels), self.images.settings["frames"]
        each = cut.reshape(len(cut), 3, 1, -1)
        return np.broadcast_to(each, (len(cut), 3, frames, each.shape[3])).reshape(len(cut), -1)

    def text(self, grid: Grid) -> str:
        return (self.images.token or "") * grid.n_tiles

    @property
    def alone(self) -> str:
        settings = self.images.settings
        return f"{settings['begin']}{self.images.token}{settings['end']}"

    def runs(self, image: Pixels) -> list[EncoderRun]:
        (found,), settings = super().runs(image), self.images.settings
        places = found[PLACES]
        if window := int(settings["window"]):
            blocks = places // (self._merge * window)
            found[WINDOWS] = blocks[:, 0] * (blocks[:, 1].max() + 1) + blocks[:, 1]
        if side := int(settings["side"]):
            found[NEAR], found[WEIGHTS] = _near(places, places.max(0) + 1, side)
        return [found]


class Pixtral(PatchFamily):
    """Mistral 3 and Pixtral. A picture keeps its shape and is never enlarged beyond whole blocks of patches; a token
    ends each of its lines."""

    def low_settings(self) -> dict[str, Any]:
        return {"most": [min(each, LOW_SIDE) for each in self.images.settings["most"]]}

    def grid(self, height: int, width: int) -> Grid:
        most, side = self.images.settings["most"], self._patch * self._merge
        if (ratio := max(height / most[0], width / most[1])) > 1:
            height, width = floor(height / ratio), floor(width / ratio)
        if not height or not width:
            raise PromptError(
                f"received a picture that is less than a pixel wide in {most[1]} x {most[0]} pixels, expected one of "
                "another shape",
                hint="crop the picture",
            )
        return Grid(ceil(height / side), ceil(width / side), whole=False)

    def most_rows(self) -> int:
        high, wide = (ceil(int(each) / (self._patch * self._merge)) for each in self.images.settings["most"])
        return high * wide

    def text(self, grid: Grid) -> str:
        settings = self.images.settings
        line = (self.images.token or "") * grid.columns
        return str(settings["break"]).join([line] * grid.rows) + str(settings["end"])


class Gemma4(PatchFamily):
    """Gemma 4. A picture becomes as large as its budget of rows allows, in its own shape."""

    def __init__(self, images: Any) -> None:
        super().__init__(images)
        self._places = int(images.settings["places"])

    def low_settings(self) -> dict[str, Any]:
        return {"most": min(self.images.settings["most"], _LOW_ROWS)}

    def grid(self, height: int, width: int) -> Grid:
        side, most = self._patch * self._merge, int(self.images.settings["most"])
        factor = sqrt(most * side**2 / (height * width))
        rows, columns = (floor(factor * each / side) for each in (height, width))
        if not rows:
            rows, columns = 1, min(floor(width / height), most)
        elif not columns:
            rows, columns = min(floor(height / width), most), 1
        if (line := max(rows, columns) * self._merge) > self._places:
            raise PromptError(
                f"received a picture of {width} x {height} pixels, which has {line} patches in a line, expected at "
                f"most {self._places}, for which the encoder has positions",
                hint="crop the picture",
            )
        return Grid(rows, columns, whole=False)

    def text(self, grid: Grid) -> str:
        settings = self.images.settings
        return f"{settings['begin']}{(self.images.token or '') * grid.n_tiles}{settings['end']}"

    def _cut(self, pixels: Tile) -> Tile:
        return blocks_of(pixels, self._patch, self._merge, channels_last=True)


def _near(
    places: NDArray[np.generic], sizes: Sequence[int], side: int
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
