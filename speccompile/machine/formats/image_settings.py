"""Numbers of an image processor, and the placeholders of its pictures, as data.

`compiler.checkpoints.images` reads them from preprocessor_config.json, and a manifest holds them in plan.images.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

ENCODER_PRECISION = "float32"
"""Precision of an encoder's weights by default."""


@dataclass(frozen=True)
class ImageSettings:
    """Preprocessing and placeholders of a target's pictures. A manifest has them in plan.images.

    family: way of cutting a picture into tiles, one of `runtime.images.families`. token_id: of the placeholder that a
    row of the encoder replaces; token: text that stands for a picture in a prompt, None without a tokenizer. width: of
    a row; tile_rows: rows of a tile; tile: height and width of a tile in pixels. resample: filter of resizing. rescale,
    mean, std: pixels become (pixel * rescale - mean) / std for each channel. settings: what a family needs besides.
    row_token: text of token_id where `token` is another one. both_ways: the rows of a picture attend to each other in
    both directions. axes: of each rotary frequency the axis of its positions, 0 for time, 1 for rows, 2 for columns
    (M-RoPE); none where a row has one position as a token does. stacked: number of the decoder's first layers to whose
    outputs the encoder adds as well (DeepStack); a row then has a part for each of them behind its own. in_windows:
    rows see each other in both directions in layers with a window alone. padded: tokens for which the decoder looks up
    the last of these, the token for padding. precision: of the encoder's weights.
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
    row_token: str | None = None
    both_ways: bool = False
    axes: tuple[int, ...] = ()
    stacked: int = 0
    in_windows: bool = False
    padded: tuple[int, ...] = ()
    precision: str = ENCODER_PRECISION

    @property
    def placeholders(self) -> tuple[str, ...]:
        """Return texts that stand for pictures and their rows, which are plain text where users write them."""
        return tuple(dict.fromkeys(each for each in (self.token, self.row_token) if each is not None))

    def describe(self) -> str:
        """Describe the pictures in a line."""
        height, width = self.tile
        tile = f"{self.family}, {self.tile_rows} tokens for a tile of {width} x {height} pixels"
        return tile if self.precision == ENCODER_PRECISION else f"{tile}, encoded in {self.precision}"

    def to_json(self) -> dict[str, Any]:
        lists = {name: list(getattr(self, name)) for name in _LISTS}
        return asdict(self) | lists | {"settings": dict(self.settings)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "ImageSettings":
        """Parse the result of `to_json`. Raise KeyError or TypeError when a field is missing or unknown."""
        return cls(**{**data, **{name: tuple(data[name]) for name in _LISTS if name in data}})


_LISTS = ("tile", "mean", "std", "axes", "padded")


def rotary_axes(sections: Sequence[int], *, interleaved: bool) -> tuple[int, ...]:
    """Return the axis of each rotary frequency (M-RoPE), of so many on each axis: one axis after the other, or in
    turn."""
    if not interleaved:
        return tuple(axis for axis, count in enumerate(sections) for _ in range(count))
    places = range(sum(sections))
    return tuple(place % 3 if place % 3 and place < 3 * sections[place % 3] else 0 for place in places)
