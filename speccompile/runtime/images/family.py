"""Families of models: sizes of pictures, the encoder's inputs, and the text that stands for a picture."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from speccompile.errors import PromptError
from speccompile.machine.formats.image_settings import ImageSettings
from speccompile.runtime.images.resize import Pixels, resize

Tile = NDArray[np.float32]
"""Normalized pixels."""

Rows = NDArray[np.float32]
"""Rows of a picture: float32 [n, W]."""

EncoderRun = dict[str, NDArray[np.generic]]
"""Inputs of one run of the encoder, by name."""


class Grid(NamedTuple):
    """Parts of a picture: rows and columns of them, and the whole picture if `whole`. size: height and width of the
    picture, where the number of its rows depends on them as well."""

    rows: int
    columns: int
    whole: bool
    size: tuple[int, int] = (0, 0)

    @property
    def n_tiles(self) -> int:
        """Number of parts, the whole picture included."""
        return self.rows * self.columns + self.whole


NARROWEST = 200
"""Longest side of a picture, in units of the other, where the shortest is enlarged."""


def check_shape(height: int, width: int) -> None:
    """Raise PromptError for a picture so narrow that it would become a very long one."""
    if max(height, width) > NARROWEST * min(height, width):
        raise PromptError(
            f"received a picture of {width} x {height} pixels, expected sides of at most {NARROWEST} to 1",
            hint="crop the picture",
        )


class Family(ABC):
    """Preprocessing of the pictures of one family of models."""

    def __init__(self, images: ImageSettings) -> None:
        self.images = images

    def low_settings(self) -> dict[str, Any]:
        """Return settings of pictures with less detail, in place of the target's own."""
        return {}

    @cached_property
    def low(self) -> Self:
        """Return the family for pictures with less detail, which become fewer rows: OpenAI's detail "low"."""
        return type(self)(replace(self.images, settings={**self.images.settings, **self.low_settings()}))

    @abstractmethod
    def grid(self, height: int, width: int) -> Grid:
        """Return the parts of a picture of this size. Raise PromptError for a shape that the family does not take."""

    @abstractmethod
    def n_rows(self, grid: Grid) -> int:
        """Return the number of rows of a picture."""

    def most_rows(self) -> int:
        """Return the largest number of rows that one run of the encoder gives."""
        return self.images.tile_rows

    @abstractmethod
    def runs(self, image: Pixels) -> list[EncoderRun]:
        """Return the runs of the encoder that give a picture's rows, in their order."""

    def joined(self, found: Sequence[Rows], grid: Grid) -> Rows:
        """Return a picture's rows float32 [n, W] from what its runs of the encoder gave."""
        return np.concatenate(found)

    @abstractmethod
    def text(self, grid: Grid) -> str:
        """Return the text of a picture in a prompt, with a placeholder for every row."""

    @property
    def alone(self) -> str:
        """Text that stands for a picture where a prompt has none: the placeholder, and what belongs around it."""
        return self.images.token or ""

    def normalized(self, pixels: Pixels) -> Tile:
        """Return float32 [height, width, 3], computed as transformers does: scaled in float64, rounded, normalized."""
        mean, std = np.array(self.images.mean, np.float32), np.array(self.images.std, np.float32)
        scaled = (pixels.astype(np.float64) * self.images.rescale).astype(np.float32)
        found: Tile = (scaled - mean) / std
        return found

    def _resized(self, image: Pixels, height: int, width: int) -> Pixels:
        return resize(image, height, width, self.images.resample)
