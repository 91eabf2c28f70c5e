"""LFM2-VL: a picture in its shape, or, if it is large, tiles of one size and then the whole in its shape."""

from math import ceil, floor, isqrt, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from speccompile.bundle.media import COLUMN_WEIGHTS, PIXELS, PLACES, ROW_WEIGHTS
from speccompile.runtime.images.family import EncoderRun, Family, Grid, Tile
from speccompile.runtime.images.limits import MAX_SIDE
from speccompile.runtime.images.patches import blocks_of, patch_positions
from speccompile.runtime.images.resize import Pixels, resize
from speccompile.runtime.images.tiles import nearest


class Lfm2VL(Family):
    """LFM2-VL. The encoder reads each tile in a run of its own.

    Pixels are those of torch, not of Pillow: its processor is made of torch alone, which resizes with coefficients of
    16 bits, and scales and normalizes in one step.
    """

    def low_settings(self) -> dict[str, Any]:
        return {"split": False}

    def grid(self, height: int, width: int) -> Grid:
        """Return the grid of tiles for a picture of a size. `size` is that of the whole picture as a tile."""
        settings, size = self.images.settings, self._own_size(height, width)
        if not settings["split"] or self._rounded(height, width, settings["patch"]) <= self._most * settings["large"]:
            return Grid(0, 0, whole=True, size=size)
        columns, rows = nearest(height, width, settings["grids"], self.images.tile[0] * self.images.tile[1])
        return Grid(rows, columns, rows * columns == 1 or settings["thumbnail"], size)

    def n_rows(self, grid: Grid) -> int:
        return self._tile_grids(grid) * self.images.tile_rows + (_area(grid.size) // self._side**2 if grid.whole else 0)

    def most_rows(self) -> int:
        """Return the rows of a tile, of the largest whole picture, or of the narrowest one."""
        most = int(self.images.settings["most"])
        return max(self.images.tile_rows, most, isqrt(MAX_SIDE * most))

    def runs(self, image: Pixels) -> list[EncoderRun]:
        grid, (high, wide) = self.grid(*image.shape[:2]), self.images.tile
        tiles: list[Pixels] = []
        if self._tile_grids(grid):
            whole = self._torch_resized(image, grid.rows * high, grid.columns * wide)
            tiles += [
                whole[top : top + high, left : left + wide]
                for top in range(0, len(whole), high) for left in range(0, whole.shape[1], wide)
            ]  # fmt: skip
        if grid.whole:
            tiles.append(self._torch_resized(image, *grid.size))
        return [self._run(tile) for tile in tiles]

    def text(self, grid: Grid) -> str:
        settings, token = self.images.settings, self.images.token or ""
        marks = [
            f"<|img_row_{row}_col_{column}|>{token * self.images.tile_rows}"
            for row in range(1, grid.rows + 1) for column in range(1, grid.columns + 1)
        ] if self._tile_grids(grid) else []  # fmt: skip
        if grid.whole:
            marks += [settings["whole"] if marks else "", token * (_area(grid.size) // self._side**2)]
        return f"{settings['begin']}{''.join(marks)}{settings['end']}"

    def normalized(self, pixels: Pixels) -> Tile:
        scale = np.float32(1.0 / self.images.rescale)
        mean, std = (np.array(each, np.float32) * scale for each in (self.images.mean, self.images.std))
        found: Tile = (pixels.astype(np.float32) - mean) / std
        return found

    def _run(self, tile: Pixels) -> EncoderRun:
        patch, merge, side = (int(self.images.settings[name]) for name in ("patch", "merge", "side"))
        places = patch_positions(Grid(tile.shape[0] // self._side, tile.shape[1] // self._side, whole=False), merge)
        found: EncoderRun = {PIXELS: blocks_of(self.normalized(tile), patch, merge, channels_last=True), PLACES: places}
        for axis, name in enumerate((ROW_WEIGHTS, COLUMN_WEIGHTS)):
            found[name] = _stretched(places[:, axis], tile.shape[axis] // patch, side)
        return found

    def _torch_resized(self, image: Pixels, height: int, width: int) -> Pixels:
        return resize(image, height, width, self.images.resample, like_torch=True)

    def _tile_grids(self, grid: Grid) -> int:
        """Return the number of tiles besides the whole picture: a grid of one has none."""
        return grid.rows * grid.columns if grid.rows * grid.columns > 1 else 0

    @property
    def _side(self) -> int:
        """Return pixels of a row's side."""
        return int(self.images.settings["patch"]) * int(self.images.settings["merge"])

    @property
    def _most(self) -> int:
        """Return pixels of the largest picture that stays whole."""
        return int(self.images.settings["most"]) * self._side**2

    def _rounded(self, height: int, width: int, least: int) -> int:
        """Return the pixels of a picture whose sides are the nearest multiples of a row's."""
        high, wide = (max(least, round(each / self._side) * self._side) for each in (height, width))
        return high * wide

    def _own_size(self, height: int, width: int) -> tuple[int, int]:
        """Return the sides of the whole picture: multiples of a row's, in number between two limits."""
        side, area = self._side, self._rounded(height, width, self._side)
        least = int(self.images.settings["least"]) * side**2
        if area > self._most:
            shrink = sqrt(height * width / self._most)
            high, wide = (max(side, floor(each / shrink / side) * side) for each in (height, width))
        elif area < least:
            grow = sqrt(least / (height * width))
            high, wide = (ceil(each * grow / side) * side for each in (height, width))
        else:
            high, wide = (max(side, round(each / side) * side) for each in (height, width))
        return high, wide


def _area(size: tuple[int, int]) -> int:
    return size[0] * size[1]


def _stretched(places: NDArray[np.int64], size: int, side: int) -> NDArray[np.float32]:
    """Return the weights of a table's entries along one axis for each place, float32 [n, side]: bilinear, with as many
    entries as a place covers. size: number of places along the axis."""
    scale = np.float32(side) / np.float32(size)
    center = (places.astype(np.float32) + np.float32(0.5)) * scale - np.float32(0.5)
    away = np.abs(np.arange(side, dtype=np.float32) - center[:, None]) / max(scale, np.float32(1))
    weights = np.maximum(np.float32(1) - away, 0)
    return np.asarray(weights / weights.sum(1, keepdims=True, dtype=np.float64), np.float32)
