"""Numbers of an image processor, and the placeholders of its pictures, as data.

`compiler.checkpoints.images` reads them from preprocessor_config.json, and a manifest holds them in plan.images.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class ImageSettings:
    """Preprocessing and placeholders of a target's pictures. A manifest has them in plan.images.

    family: way of cutting a picture into tiles, one of `runtime.images.tiles`. token_id: of the placeholder that a
    row of the encoder replaces; token: its text, None without a tokenizer. width: of a row; tile_rows: rows of a tile;
    tile: height and width of a tile in pixels. resample: filter of resizing. rescale, mean, std: pixels become
    (pixel * rescale - mean) / std for each channel. settings: what a family needs besides.
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
