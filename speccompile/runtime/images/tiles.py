"""Families: how a picture becomes tiles, and what text stands for them."""

from abc import ABC, abstractmethod
from math import ceil
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from speccompile.machine.formats.image_settings import ImageSettings
from speccompile.runtime.images.resize import Pixels, resize

Tile = NDArray[np.float32]
"""Normalized pixels: float32 [3, height, width]."""


class Grid(NamedTuple):
    """Tiles of a picture: rows and columns of parts, before the whole picture if `whole`."""

    rows: int
    columns: int
    whole: bool

    @property
    def n_tiles(self) -> int:
        """Number of tiles."""
        return self.rows * self.columns + self.whole


class Family(ABC):
    """Preprocessing of the pictures of one family of models."""

    def __init__(self, images: ImageSettings) -> None:
        self.images = images

    @abstractmethod
    def grid(self, height: int, width: int) -> Grid:
        """Return the tiles of a picture of this size."""

    @abstractmethod
    def cut(self, image: Pixels) -> list[Pixels]:
        """Return the tiles of a picture in the order of their rows."""

    @abstractmethod
    def text(self, grid: Grid) -> str:
        """Return the text of a picture in a prompt, with a placeholder for every row."""

    def tiles(self, image: Pixels) -> list[Tile]:
        """Return the normalized tiles of a picture."""
        return [self.normalized(tile) for tile in self.cut(image)]

    def normalized(self, tile: Pixels) -> Tile:
        """Return float32 [3, height, width], computed as transformers does: scaled in float64, rounded, normalized."""
        mean, std = np.array(self.images.mean, np.float32), np.array(self.images.std, np.float32)
        scaled = (tile.astype(np.float64) * self.images.rescale).astype(np.float32)
        return np.ascontiguousarray(np.moveaxis((scaled - mean) / std, 2, 0))

    def _resized(self, image: Pixels, height: int, width: int) -> Pixels:
        return resize(image, height, width, self.images.resample)

    def _parts(self, image: Pixels) -> list[Pixels]:
        """Return the tiles of a picture whose sides are multiples of a tile's."""
        height, width = self.images.tile
        starts = [(top, left) for top in range(0, image.shape[0], height) for left in range(0, image.shape[1], width)]
        return [image[top : top + height, left : left + width] for top, left in starts]

    @property
    def _placeholders(self) -> str:
        return (self.images.token or "") * self.images.tile_rows


class Idefics3(Family):
    """Idefics3 and SmolVLM. The longest side becomes `longest_edge`, both sides multiples of a tile's, and after the
    parts comes the whole picture as a tile."""

    _MOST = 4096
    """Longest side in any case."""

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


class InternVL(Family):
    """InternVL. The picture becomes the grid of tiles whose shape is nearest to its own, then comes the whole picture
    as a tile if there are several."""

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
        """Return columns and rows. Of equally near grids the larger one wins while half of it is filled."""
        least, most = int(self.images.settings["least"]), int(self.images.settings["most"])
        if most <= 1:
            return 1, 1
        sizes = range(1, most + 1)
        grids = sorted(
            ((c, r) for c in sizes for r in sizes if least <= c * r <= most), key=lambda each: each[0] * each[1]
        )
        ratio, best, distance = width / height, (1, 1), float("inf")
        for columns, rows in grids:
            away = abs(ratio - columns / rows)
            is_filled = width * height > 0.5 * self.images.tile[0] * self.images.tile[1] * columns * rows
            if away < distance or (away == distance and is_filled):
                best, distance = (columns, rows), away
        return best


FAMILIES: dict[str, type[Family]] = {"idefics3": Idefics3, "internvl": InternVL}
"""Name of a family in a manifest -> its preprocessing."""
