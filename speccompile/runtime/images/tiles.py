"""Families whose pictures become tiles of one size, each of which the encoder turns into the same number of rows."""

from abc import abstractmethod
from collections.abc import Iterable
from math import ceil
from typing import Any

import numpy as np

from speccompile.bundle.media import PIXELS
from speccompile.runtime.images.family import EncoderRun, Family, Grid, Tile, check_shape
from speccompile.runtime.images.resize import Pixels


class TileFamily(Family):
    """Pictures as tiles."""

    @abstractmethod
    def cut(self, image: Pixels) -> list[Pixels]:
        """Return the tiles of a picture in the order of their rows."""

    def n_rows(self, grid: Grid) -> int:
        return grid.n_tiles * self.images.tile_rows

    def runs(self, image: Pixels) -> list[EncoderRun]:
        return [{PIXELS: tile} for tile in self.tiles(image)]

    def tiles(self, image: Pixels) -> list[Tile]:
        """Return the normalized tiles of a picture, float32 [3, height, width]."""
        return [np.ascontiguousarray(np.moveaxis(self.normalized(tile), 2, 0)) for tile in self.cut(image)]

    def _parts(self, image: Pixels) -> list[Pixels]:
        """Return the tiles of a picture whose sides are multiples of a tile's."""
        height, width = self.images.tile
        starts = [(top, left) for top in range(0, image.shape[0], height) for left in range(0, image.shape[1], width)]
        return [image[top : top + height, left : left + width] for top, left in starts]

    @property
    def _placeholders(self) -> str:
        return (self.images.row_token or self.images.token or "") * self.images.tile_rows


class Idefics3(TileFamily):
    """Idefics3 and SmolVLM. The longest side becomes `longest_edge`, both sides multiples of a tile's, and after the
    parts comes the whole picture as a tile."""

    _MOST = 4096
    """Longest side in any case."""

    def low_settings(self) -> dict[str, Any]:
        return {"split": False}

    def grid(self, height: int, width: int) -> Grid:
        if not self.images.settings["split"]:
            return Grid(0, 0, whole=True)
        (high, wide), side = self._padded(*self._first_size(height, width)), self.images.tile[0]
        return Grid(high // side, wide // side, whole=True) if max(high, wide) > side else Grid(0, 0, whole=True)

    def cut(self, image: Pixels) -> list[Pixels]:
        image = self._resized(image, *self._first_size(*image.shape[:2]))
        if not self.images.settings["split"]:
            return [self._resized(image, *self.images.tile)]
        image = self._resized(image, *self._padded(*image.shape[:2]))
        parts = self._parts(image)
        return [*parts, self._resized(image, *self.images.tile)] if len(parts) > 1 else parts

    def text(self, grid: Grid) -> str:
        around, whole = self.images.settings["around"], self.images.settings["whole"]
        end = f"{around}{whole}{self._placeholders}{around}"
        if not grid.rows:
            return end
        lines = (
            "".join(f"{around}<row_{row}_col_{column}>{self._placeholders}" for column in range(1, grid.columns + 1))
            for row in range(1, grid.rows + 1)
        )
        return "".join(f"{line}\n" for line in lines) + f"\n{end}"

    def _first_size(self, height: int, width: int) -> tuple[int, int]:
        longest, ratio = int(self.images.settings["longest_edge"]), width / height
        if width >= height:
            width, height = longest, int(longest / ratio)
            height += height % 2
        else:
            height, width = longest, int(longest * ratio)
            width += width % 2
        height, width = max(height, 1), max(width, 1)
        ratio = width / height
        if width >= height and width > self._MOST:
            width, height = self._MOST, int(self._MOST / ratio)
        elif height > self._MOST:
            height, width = self._MOST, int(self._MOST * ratio)
        return max(height, 1), max(width, 1)

    def _padded(self, height: int, width: int) -> tuple[int, int]:
        side, ratio = self.images.tile[0], width / height
        if width >= height:
            width = ceil(width / side) * side
            return ceil(int(width / ratio) / side) * side, width
        height = ceil(height / side) * side
        return height, ceil(int(height * ratio) / side) * side


class InternVL(TileFamily):
    """InternVL. The picture becomes the grid of tiles whose shape is nearest to its own, then comes the whole picture
    as a tile if there are several."""

    def low_settings(self) -> dict[str, Any]:
        return {"least": 1, "most": 1}

    def grid(self, height: int, width: int) -> Grid:
        columns, rows = self._nearest(height, width)
        return Grid(rows, columns, whole=rows * columns > 1)

    def cut(self, image: Pixels) -> list[Pixels]:
        high, wide = self.images.tile
        grid = self.grid(*image.shape[:2])
        parts = self._parts(self._resized(image, grid.rows * high, grid.columns * wide))
        return [*parts, self._resized(image, high, wide)] if grid.whole else parts

    def text(self, grid: Grid) -> str:
        settings = self.images.settings
        return f"{settings['begin']}{self._placeholders * grid.n_tiles}{settings['end']}"

    def _nearest(self, height: int, width: int) -> tuple[int, int]:
        """Return columns and rows."""
        least, most = int(self.images.settings["least"]), int(self.images.settings["most"])
        if most <= 1:
            return 1, 1
        sizes = range(1, most + 1)
        grids = sorted(
            ((c, r) for c in sizes for r in sizes if least <= c * r <= most), key=lambda each: each[0] * each[1]
        )
        return nearest(height, width, grids, self.images.tile[0] * self.images.tile[1])


def nearest(height: int, width: int, grids: Iterable[tuple[int, int]], tile: int) -> tuple[int, int]:
    """Return the grid (columns, rows) whose shape is nearest to a picture's. Of equally near ones a later one wins
    while half of it is filled. tile: pixels of one."""
    ratio, best, distance = width / height, (1, 1), float("inf")
    for columns, rows in grids:
        away = abs(ratio - columns / rows)
        if away < distance or (away == distance and width * height > 0.5 * tile * columns * rows):
            best, distance = (columns, rows), away
    return best


class Llava(TileFamily):
    """LLaVA 1.5 and models like it: a picture of any shape becomes one tile, its middle where the shortest side is that
    of a tile."""

    def grid(self, height: int, width: int) -> Grid:
        if self.images.settings["shortest"]:
            check_shape(height, width)
        return Grid(1, 1, whole=False)

    def cut(self, image: Pixels) -> list[Pixels]:
        high, wide = self.images.tile
        if shortest := int(self.images.settings["shortest"]):
            height, width = image.shape[:2]
            longest = int(shortest * max(height, width) / min(height, width))
            image = self._resized(image, *((longest, shortest) if width <= height else (shortest, longest)))
            top, left = (image.shape[0] - high) // 2, (image.shape[1] - wide) // 2
            return [image[top : top + high, left : left + wide]]
        return [self._resized(image, high, wide)]

    def text(self, grid: Grid) -> str:
        return self._placeholders


class Gemma3(TileFamily):
    """Gemma 3: a picture of any shape becomes one square tile."""

    def grid(self, height: int, width: int) -> Grid:
        return Grid(1, 1, whole=False)

    def cut(self, image: Pixels) -> list[Pixels]:
        return [self._resized(image, *self.images.tile)]

    def text(self, grid: Grid) -> str:
        return f"\n\n{self.images.token}{self._placeholders}{self.images.settings['end']}\n\n"
