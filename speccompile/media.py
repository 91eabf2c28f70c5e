"""The contract's inputs of a target that sees pictures.

An encoder, `ENCODE_IMAGE`, is one more graph, which runs before the rounds, once for each tile of a picture. The rows
that it gives stand where the prompt has placeholders: the round itself does not change.

media           float32 [media, W]      the encoder's rows for this window, of all slots together; one row of zeros in a
                                        window without pictures
media_rows      int64 [B, window]       0: the window's token; n: row n - 1 of media stands in its place
offsets         int64 [B, A, window]    of targets with A axes of positions: what is added to a token's place among all
                                        tokens, which masks go on using

Zeros everywhere are a window of text, so that a host that knows no pictures runs texts by leaving the buffers alone.
Drafts are always tokens.

Standard library only, like `contract`.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

ENCODE_IMAGE = "encode_image"
"""Name of the graph that encodes a tile: pixels float32 [3, height, width] -> rows float32 [rows, W]."""

PIXELS, ROWS = "pixels", "rows"
"""Its input and its output."""

MEDIA, MEDIA_ROWS, OFFSETS = MEDIA_INPUTS = ("media", "media_rows", "offsets")
"""Inputs of a round's graphs that pictures fill."""

IMAGES_FOLDER = "images"
"""Folder of a bundle with the encoder's graph and weights."""


PROOF_SHAPES = ((56, 84), (90, 40), (30, 240), (240, 30), (64, 64))
"""Height and width of the pictures of a proof: of other shapes than their transposes, but for the last."""


@dataclass(frozen=True)
class ImageSettings:
    """Preprocessing and placeholders of a target's pictures. A manifest has them in plan.images.

    family: way of cutting a picture into tiles, one of `runtime.images.tiles`. token_id: of the placeholder that a
    row of the encoder replaces; token: its text, None without a tokenizer. width: of a row; tile_rows: rows of a tile;
    tile: height and width of a tile in pixels. resample: filter of resizing. rescale, mean, std: pixels become
    (pixel * rescale - mean) / std for each channel. settings: what a family needs besides. axes: of the positions of
    rotary embeddings, 0 if every token's position is its place.
    """

    family: str
    token_id: int
    token: str | None
    width: int
    tile_rows: int
    tile: tuple[int, int]
    resample: str
    rescale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    axes: int = 0

    def describe(self) -> str:
        """Describe the pictures in a line."""
        height, width = self.tile
        return f"{self.family}, {self.tile_rows} tokens for a tile of {width} x {height} pixels"

    def to_json(self) -> dict[str, Any]:
        lists = {"tile": list(self.tile), "mean": list(self.mean), "std": list(self.std)}
        return asdict(self) | lists | {"settings": dict(self.settings)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "ImageSettings":
        """Parse the result of `to_json`. Raise KeyError or TypeError when a field is missing or unknown."""
        return cls(**{**data, "tile": tuple(data["tile"]), "mean": tuple(data["mean"]), "std": tuple(data["std"])})
