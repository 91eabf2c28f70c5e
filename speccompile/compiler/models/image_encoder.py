"""The vision tower and the projector of a multimodal checkpoint, as a function of one tile."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import AutoModelForImageTextToText

from speccompile.compiler.models.load import read_whole
from speccompile.errors import CheckpointError


def load_whole(folder: Path) -> nn.Module:
    """Load the whole multimodal model in `folder` in float32 and eval mode, with eager attention. Its weights stay in
    the folder's files. Raise CheckpointError for weights that are missing or unreadable."""
    model, report = read_whole(folder, AutoModelForImageTextToText)
    lacking = sorted(report["missing_keys"]) + sorted(str(key) for key in report["mismatched_keys"])
    if lacking:
        raise CheckpointError(
            f"{folder}: the checkpoint lacks {len(lacking)} tensors of {type(model).__name__}, first {lacking[0]}",
            hint="remove target.images if the checkpoint has no vision tower, else check that every shard is there",
        )
    model.set_attn_implementation("eager")
    return model.eval().requires_grad_(False)


class _Idefics3(nn.Module):
    """Idefics3 and SmolVLM over one whole tile, whose positions are constant."""

    def __init__(self, whole: nn.Module, tile: tuple[int, int]) -> None:
        super().__init__()
        self.tower, self.connector = whole.model.vision_model, whole.model.connector
        patch, found = self.tower.embeddings.patch_size, list[Tensor]()
        grid = torch.ones(1, tile[0] // patch, tile[1] // patch, dtype=torch.bool)
        take = self.tower.embeddings.position_embedding.register_forward_pre_hook(
            lambda _, given: found.append(given[0])
        )
        with take, torch.no_grad():
            self.tower.embeddings(torch.zeros(1, 3, *tile), grid)
        self.register_buffer("positions", found[0], persistent=False)

    def forward(self, pixels: Tensor) -> Tensor:
        embeddings = self.tower.embeddings
        patches = embeddings.patch_embedding(pixels[None]).flatten(2).transpose(1, 2)
        hidden = patches + embeddings.position_embedding(self.positions)
        hidden = self.tower.encoder(inputs_embeds=hidden, attention_mask=None).last_hidden_state
        rows: Tensor = self.connector(self.tower.post_layernorm(hidden))[0]
        return rows


class _InternVL(nn.Module):
    """InternVL over one tile."""

    def __init__(self, whole: nn.Module, tile: tuple[int, int]) -> None:
        super().__init__()
        self.model = whole.model

    def forward(self, pixels: Tensor) -> Tensor:
        config = self.model.config
        layer, strategy = config.vision_feature_layer, config.vision_feature_select_strategy
        features = self.model.get_image_features(
            pixels[None], vision_feature_layer=layer, vision_feature_select_strategy=strategy
        )
        rows: Tensor = features.pooler_output[0]
        return rows


ENCODERS: dict[str, Callable[[nn.Module, tuple[int, int]], nn.Module]] = {"idefics3": _Idefics3, "internvl": _InternVL}
"""Family -> module over a tile of its model: pixels float32 [3, height, width] -> rows float32 [rows, W]."""


def pixel_inputs(whole: nn.Module, tiles: Tensor) -> dict[str, Tensor]:
    """Return transformers' inputs for the tiles float32 [n, 3, height, width] of one prompt's pictures."""
    several = whole.config.model_type in ("idefics3", "smolvlm")  # takes pictures of several prompts
    return {"pixel_values": tiles[None] if several else tiles}


@torch.no_grad()
def tile_features(whole: nn.Module, pixels: Tensor) -> Tensor:
    """Return transformers' own features float32 [tiles, rows, W] of tiles float32 [tiles, 3, height, width]."""
    features = whole.get_image_features(**pixel_inputs(whole, pixels)).pooler_output
    found = torch.cat(list(features)) if isinstance(features, list | tuple) else features
    return found.reshape(len(pixels), -1, found.shape[-1])
