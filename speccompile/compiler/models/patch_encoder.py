"""Vision towers over the patches of a picture of any size, whose attention has no other picture beside it."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional

from speccompile.bundle.media import COLUMN_WEIGHTS, NEAR, PIXELS, PLACES, ROW_WEIGHTS, WEIGHTS, WINDOWS
from speccompile.compiler.step import ops
from speccompile.machine.formats.image_settings import ImageSettings

_ROWS = 6
"""Rows of the picture with which a tower is traced."""


class PatchEncoder(nn.Module):
    """An encoder of a picture's patches: those of one picture in, block by block, and its rows out."""

    def __init__(self, images: ImageSettings) -> None:
        super().__init__()
        self._images = images

    def example(self) -> dict[str, Tensor]:
        """Return inputs of a picture of `_ROWS` rows."""
        settings = self._images.settings
        patches = _ROWS * settings["merge"] ** 2
        return {
            PIXELS: torch.zeros(patches, 3 * settings.get("frames", 1) * settings["patch"] ** 2),
            PLACES: torch.zeros(patches, 2, dtype=torch.int64),
        }

    def dynamic(self) -> Mapping[str, Any]:
        """Return the dynamic dimensions of these inputs: pictures have any number of rows."""
        patches = self._images.settings["merge"] ** 2 * Dim("rows", min=1)
        return {name: {0: patches} for name in self.example()}


class QwenVLEncoder(PatchEncoder):
    """Qwen2.5-VL's, Qwen3-VL's and Qwen3.5's tower over one picture.

    Patches keep their order: a layer with windows lets a patch attend to those of its window, where transformers sorts
    patches by windows. Rows have DeepStack's parts behind their own.
    """

    def __init__(self, whole: nn.Module, images: ImageSettings) -> None:
        super().__init__(images)
        self.tower = whole.model.visual
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
            hidden = hidden + _attend_joint(block.attn, block.norm1(hidden), turns, own)
            hidden = hidden + block.mlp(block.norm2(hidden))
            if number in self._stacked:
                parts.append(tower.deepstack_merger_list[self._stacked.index(number)](hidden))
        return torch.cat([tower.merger(hidden), *parts], 1)

    def example(self) -> dict[str, Tensor]:
        found, settings = super().example(), self._images.settings
        patches = len(found[PLACES])
        if settings["window"]:
            found[WINDOWS] = torch.zeros(patches, dtype=torch.int64)
        if settings["side"]:
            found[NEAR], found[WEIGHTS] = torch.zeros(patches, 4, dtype=torch.int64), torch.zeros(patches, 4)
        return found


class PixtralEncoder(PatchEncoder):
    """Pixtral's tower over one picture, and its projector; Mistral 3's merges blocks of patches before."""

    def __init__(self, whole: nn.Module, images: ImageSettings) -> None:
        super().__init__(images)
        self.tower, self.projector = whole.model.vision_tower, whole.model.multi_modal_projector
        self._layer = range(len(self.tower.transformer.layers) + 1)[whole.config.vision_feature_layer]

    def forward(self, pixels: Tensor, places: Tensor) -> Tensor:
        tower, projector = self.tower, self.projector
        hidden = tower.ln_pre(functional.linear(pixels, tower.patch_conv.weight.flatten(1)))
        turns = tower.patch_positional_embedding(hidden, places)
        for layer in tower.transformer.layers[: self._layer]:
            hidden = hidden + _attend_apart(layer.attention, layer.attention_norm(hidden), turns)
            hidden = hidden + layer.feed_forward(layer.ffn_norm(hidden))
        if hasattr(projector, "patch_merger"):
            blocks = projector.norm(hidden).unflatten(0, (-1, self._images.settings["merge"] ** 2))
            hidden = projector.patch_merger.merging_layer(blocks.transpose(1, 2).flatten(1))
        found: Tensor = projector.linear_2(projector.act(projector.linear_1(hidden)))
        return found


class Gemma4Encoder(PatchEncoder):
    """Gemma 4's tower over one picture: blocks of patches are averaged."""

    def __init__(self, whole: nn.Module, images: ImageSettings) -> None:
        super().__init__(images)
        self.tower, self.projector = whole.model.vision_tower, whole.model.embed_vision

    def forward(self, pixels: Tensor, places: Tensor) -> Tensor:
        tower, (tall, wide) = self.tower, (places[:, 0], places[:, 1])
        table = tower.patch_embedder.position_embedding_table
        hidden = tower.patch_embedder.input_proj(2 * (pixels - 0.5)) + table[0][wide] + table[1][tall]
        turns = [each[0] for each in tower.encoder.rotary_emb(hidden, places.flip(1)[None])]
        for layer in tower.encoder.layers:
            attended = self._attend(layer.self_attn, layer.input_layernorm(hidden), turns)
            hidden = hidden + layer.post_attention_layernorm(attended)
            own = layer.mlp(layer.pre_feedforward_layernorm(hidden))
            hidden = hidden + layer.post_feedforward_layernorm(own)
        pooled = hidden.unflatten(0, (-1, self._images.settings["merge"] ** 2)).mean(1) * tower.pooler.root_hidden_size
        if tower.config.standardize:
            pooled = (pooled - tower.std_bias) * tower.std_scale
        rows: Tensor = self.projector(pooled)
        return rows

    def _attend(self, attention: nn.Module, hidden: Tensor, turns: list[Tensor]) -> Tensor:
        def heads(project: nn.Module, norm: nn.Module) -> Tensor:
            found: Tensor = norm(project(hidden).unflatten(1, (-1, attention.head_dim))).transpose(0, 1)
            return found

        halves = [each.chunk(2, -1) for each in turns]  # the first half of a head turns by columns, the other by rows
        query, key = (
            torch.cat([_turned(part, cos, sin) for part, cos, sin in zip(each.chunk(2, -1), *halves, strict=True)], -1)
            for each in (heads(attention.q_proj, attention.q_norm), heads(attention.k_proj, attention.k_norm))
        )
        groups = attention.num_key_value_groups
        value = heads(attention.v_proj, attention.v_norm).repeat_interleave(groups, 0)
        found: Tensor = attention.o_proj(_context(query, key.repeat_interleave(groups, 0), value, attention.scaling))
        return found


class Lfm2VLEncoder(PatchEncoder):
    """LFM2-VL's tower (SigLIP 2) over one tile, whose table of positions is stretched over it."""

    def __init__(self, whole: nn.Module, images: ImageSettings) -> None:
        super().__init__(images)
        self.tower, self.projector = whole.model.vision_tower, whole.model.multi_modal_projector

    def forward(self, pixels: Tensor, places: Tensor, row_weights: Tensor, column_weights: Tensor) -> Tensor:
        tower, projector = self.tower, self.projector
        weights = (row_weights[:, :, None] * column_weights[:, None, :]).flatten(1)
        hidden = tower.embeddings.patch_embedding(pixels) + weights @ tower.embeddings.position_embedding.weight
        for layer in tower.encoder.layers:
            hidden = hidden + _attend_apart(layer.self_attn, layer.layer_norm1(hidden))
            hidden = hidden + layer.mlp(layer.layer_norm2(hidden))
        blocks = tower.post_layernorm(hidden).unflatten(0, (-1, self._images.settings["merge"] ** 2)).flatten(1)
        if projector.use_layer_norm:
            blocks = projector.layer_norm(blocks)
        rows: Tensor = projector.linear_2(projector.act(projector.linear_1(blocks)))
        return rows

    def example(self) -> dict[str, Tensor]:
        found, side = super().example(), self._images.settings["side"]
        names = ROW_WEIGHTS, COLUMN_WEIGHTS
        return found | {name: torch.zeros(len(found[PLACES]), side) for name in names}


def _attend_joint(attention: nn.Module, hidden: Tensor, turns: tuple[Tensor, Tensor], bias: Tensor | None) -> Tensor:
    """Return the output of an attention over all patches float32 [N, H], with one projection for all parts. turns:
    cosine and sine; bias float32 [N, N]: added to the scores."""
    parts = attention.qkv(hidden).reshape(hidden.shape[0], 3, attention.num_heads, -1).permute(1, 2, 0, 3)
    query, key = (_turned(each, *turns) for each in parts[:2])
    found: Tensor = attention.proj(_context(query, key, parts[2], attention.scaling, bias))
    return found


def _attend_apart(attention: nn.Module, hidden: Tensor, turns: tuple[Tensor, Tensor] | None = None) -> Tensor:
    """Return the output of an attention over all patches float32 [N, H], with a projection for each part. turns: cosine
    and sine, None without rotation."""
    query, key, value = (
        project(hidden).reshape(hidden.shape[0], attention.num_heads, -1).transpose(0, 1)
        for project in (attention.q_proj, attention.k_proj, attention.v_proj)
    )
    if turns is not None:
        query, key = _turned(query, *turns), _turned(key, *turns)
    last = attention.o_proj if hasattr(attention, "o_proj") else attention.out_proj
    scaling = getattr(attention, "scaling", None) or attention.scale
    found: Tensor = last(_context(query, key, value, scaling))
    return found


def _context(query: Tensor, key: Tensor, value: Tensor, scaling: float, bias: Tensor | None = None) -> Tensor:
    """Return what all patches attend to, float32 [N, H], from parts of heads [heads, N, D].

    Head by head: the scores of 1080p's 4,888 patches take 96 MB a head, and 1.5 GB for the 16 of Qwen's towers.
    """
    heads = []
    for head in range(query.shape[0]):
        scores = query[head] @ key[head].T * scaling
        heads.append((scores if bias is None else scores + bias).softmax(-1) @ value[head])
    return torch.cat(heads, 1)


def _turned(rows: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = rows.chunk(2, -1)
    return rows * cos + torch.cat([-second, first], -1) * sin
