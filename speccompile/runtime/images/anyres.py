"""LLaVA-NeXT and LLaVA-OneVision: the whole picture as a tile, then tiles whose rows follow it line by line."""

from collections.abc import Sequence
from math import ceil, isqrt, sqrt
from typing import Any

import numpy as np

from speccompile.runtime.images.family import Grid, Rows
from speccompile.runtime.images.resize import Pixels
from speccompile.runtime.images.tiles import TileFamily

_MOST = 1.1
"""Side of the grid of rows, in units of the largest one that stays as it is."""


class LlavaOneVision(TileFamily):
    """LLaVA-OneVision ("anyres_max_N"), and LLaVA-NeXT, which shrinks no grid.

    The picture is laid, as large as it fits, on one of several canvases, black around it, and cut into tiles. The
    encoder gives a tile's rows and the row that ends a line. The tiles' rows make one grid, from which the border is
    cut; a grid of more than N tiles is shrunk; each of its lines gets an end.
    """

    def low_settings(self) -> dict[str, Any]:
        return {"canvases": [list(self.images.tile)]}

    def grid(self, height: int, width: int) -> Grid:
        high, wide = self._canvas(height, width)
        return Grid(high // self.images.tile[0], wide // self.images.tile[1], whole=True, size=(height, width))

    def n_rows(self, grid: Grid) -> int:
        _, _, (high, wide) = self._kept(grid)
        return self.images.tile_rows + high * (wide + 1)

    def cut(self, image: Pixels) -> list[Pixels]:
        height, width = image.shape[:2]
        high, wide = self._canvas(height, width)
        if (across := wide / width) < (down := high / height):
            inner = min(ceil(height * across), high), wide
        else:
            inner = high, min(ceil(width * down), wide)
        canvas = np.zeros((high, wide, 3), np.uint8)
        top, left = (high - inner[0]) // 2, (wide - inner[1]) // 2
        canvas[top : top + inner[0], left : left + inner[1]] = self._resized(image, *inner)
        return [self._resized(image, *self.images.tile), *self._parts(canvas)]

    def joined(self, found: Sequence[Rows], grid: Grid) -> Rows:
        (top, left), (high, wide), shrunk = self._kept(grid)
        side, newline = isqrt(self.images.tile_rows), found[0][-1]
        whole, *parts = (rows[:-1] for rows in found)
        cells = np.stack(parts).reshape(grid.rows, grid.columns, side, side, -1).transpose(0, 2, 1, 3, 4)
        cells = cells.reshape(grid.rows * side, grid.columns * side, -1)[top : top + high, left : left + wide]
        if shrunk != (high, wide):
            cells = _shrunk(_shrunk(cells, 0, shrunk[0]), 1, shrunk[1])
        lines = np.concatenate([cells, np.broadcast_to(newline, (len(cells), 1, len(newline)))], 1)
        return np.concatenate([whole, lines.reshape(-1, len(newline))])

    def text(self, grid: Grid) -> str:
        return (self.images.token or "") * self.n_rows(grid)

    def _canvas(self, height: int, width: int) -> tuple[int, int]:
        """Return the canvas on which most pixels of a picture are shown, and of several the smallest."""
        best, shown, wasted = (0, 0), 0, float("inf")
        for high, wide in self.images.settings["canvases"]:
            scale = min(wide / width, high / height)
            pixels = min(int(width * scale) * int(height * scale), width * height)
            if pixels > shown or (pixels == shown and high * wide - pixels < wasted):
                best, shown, wasted = (high, wide), pixels, high * wide - pixels
        return best

    def _kept(self, grid: Grid) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
        """Return the first row and column of the tiles' grid that shows the picture, how many do, and to how many they
        are shrunk."""
        side, (height, width) = isqrt(self.images.tile_rows), grid.size
        high, wide, top, left = grid.rows * side, grid.columns * side, 0, 0
        if width / height > wide / high:
            top = (high - int(round(height * (wide / width), 7))) // 2
        else:
            left = (wide - int(round(width * (high / height), 7))) // 2
        kept = high - 2 * top, wide - 2 * left
        most = int(self.images.settings["most"])
        ratio = sqrt(kept[0] * kept[1] / (most * side**2)) if most else 0
        shrunk = (int(kept[0] // ratio), int(kept[1] // ratio)) if ratio > _MOST else kept
        return (top, left), kept, shrunk


def _shrunk(cells: Rows, axis: int, size: int) -> Rows:
    """Return cells float32 [.., W] with another size along an axis: each is between the two nearest, as
    `torch.nn.functional.interpolate` does it."""
    before = cells.shape[axis]
    places = np.maximum(np.float32(before / size) * (np.arange(size, dtype=np.float32) + np.float32(0.5)) - 0.5, 0)
    low = places.astype(np.int64)
    part = (places - low).astype(np.float32).reshape((-1, 1, 1) if axis == 0 else (1, -1, 1))
    high = np.minimum(low + 1, before - 1)
    found: Rows = cells.take(low, axis) * (1 - part) + cells.take(high, axis) * part
    return found
