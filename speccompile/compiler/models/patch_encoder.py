"""Vision towers over the patches of a picture of any size, whose attention has no other picture beside it."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional

from speccompile.bundle.media import NEAR, PIXELS, PLACES, WEIGHTS, WINDOWS
from speccompile.compiler.step import ops
from speccompile.machine.formats.image_settings import ImageSettings

_ROWS = 6
"""Rows of the picture with which a tower is traced."""


class QwenVLEncoder(nn.Module):
    """Qwen2.5-VL's and Qwen3-VL's tower over one picture.

    Patches keep their order: a layer with windows lets a patch attend to those of its window, where transformers sorts
    patches by windows. Rows have DeepStack's parts behind their own.
    """

    def __init__(self, whole: nn.Module, images: ImageSettings) -> None:
        super().__init__()
        self.tower, self._images = whole.model.visual, images
        kinds = self.tower.config
        has_windows = bool(images.settings["window"])
        self._whole = set(kinds.fullatt_block_indexes) if has_windows else set(range(len(self.tower.blocks)))
        self._stacked = list(kinds.deepstack_visual_indexes) if images.stacked else []

    def forward(
        self, pixels: Tensor, places: Tensor, windows: Tensor | None = None, near: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        tower = self.tower
        embed = tower.patch_embed.proj
        hidden = functional.linear(pixels, embed.weight.flatten(1), embed.bias)
        if near is not None and weights is not None:
            hidden = hidden + (tower.pos_embed(near) * weights[:, :, None]).sum(1)
        turns = tower.rotary_pos_emb(hidden, places)
        bias = None
        if windows is not None:
            bias = torch.where(windows[:, None] == windows[None, :], 0.0, ops.HIDDEN)
        parts = []
        for number, block in enumerate(tower.blocks):
            own = None if number in self._whole else bias
            hidden = hidden + _attend(block.attn, block.norm1(hidden), turns, own)
            hidden = hidden + block.mlp(block.norm2(hidden))
            if number in self._stacked:
                parts.append(tower.deepstack_merger_list[self._stacked.index(number)](hidden))
        return torch.cat([tower.merger(hidden), *parts], 1)

    def example(self) -> dict[str, Tensor]:
        """Return inputs of a picture of `_ROWS` rows."""
        settings = self._images.settings
        patches = _ROWS * settings["merge"] ** 2
        found = {
            PIXELS: torch.zeros(patches, 3 * settings["frames"] * settings["patch"] ** 2),
            PLACES: torch.zeros(patches, 2, dtype=torch.int64),
        }
        if settings["window"]:
            found[WINDOWS] = torch.zeros(patches, dtype=torch.int64)
        if settings["side"]:
            found[NEAR], found[WEIGHTS] = torch.zeros(patches, 4, dtype=torch.int64), torch.zeros(patches, 4)
        return found

    def dynamic(self) -> Mapping[str, Any]:
        """Return the dynamic dimensions of these inputs: pictures have any number of rows."""
        patches = self._images.settings["merge"] ** 2 * Dim("rows", min=1)
        return {name: {0: patches} for name in self.example()}


def _attend(attention: nn.Module, hidden: Tensor, turns: tuple[Tensor, Tensor], bias: Tensor | None) -> Tensor:
    """Return the output of an attention over all patches float32 [N, H]. turns: cosine and sine; bias float32 [N, N]:
    added to the scores.

    Head by head: the scores of 1080p's 4,888 patches take 96 MB a head, and 1.5 GB for the 16 of Qwen's towers.
    """
    count = hidden.shape[0]
    parts = attention.qkv(hidden).reshape(count, 3, attention.num_heads, -1).permute(1, 2, 0, 3)
    (query, key), value = (_turned(each, *turns) for each in parts[:2]), parts[2]
    heads = []
    for head in range(attention.num_heads):
        scores = query[head] @ key[head].T * attention.scaling
        heads.append((scores if bias is None else scores + bias).softmax(-1) @ value[head])
    context: Tensor = attention.proj(torch.cat(heads, 1))
    return context


def _turned(rows: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = rows.chunk(2, -1)
    return rows * cos + torch.cat([-second, first], -1) * sin
