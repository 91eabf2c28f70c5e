"""The vision tower and the projector of a multimodal checkpoint, as a function of one run's inputs."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import AutoModelForImageTextToText

from speccompile.bundle.media import PIXELS
from speccompile.compiler.models.load import read_whole
from speccompile.compiler.models.patch_encoder import (
    Gemma4Encoder,
    Lfm2VLEncoder,
    PatchEncoder,
    PixtralEncoder,
    QwenVLEncoder,
)
from speccompile.errors import CheckpointError
from speccompile.machine.formats.image_settings import ImageSettings


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


class _TileEncoder(nn.Module):
    """An encoder of one tile: pixels float32 [3, height, width] -> rows float32 [rows, W]."""

    def __init__(self, whole: nn.Module, images: ImageSettings) -> None:
        super().__init__()
        self.model, self._tile = whole.model, images.tile

    def example(self) -> dict[str, Tensor]:
        """Return inputs of a run, by name."""
        return {PIXELS: torch.zeros(3, *self._tile)}

    def dynamic(self) -> None:
        """Return no dynamic dimensions: all tiles have one size."""


class _Idefics3(_TileEncoder):
    """Idefics3 and SmolVLM over one whole tile, whose positions are constant."""

    def __init__(self, whole: nn.Module, images: ImageSettings) -> None:
        nn.Module.__init__(self)
        self._tile = images.tile
        self.tower, self.connector, tile = whole.model.vision_model, whole.model.connector, images.tile
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


class _InternVL(_TileEncoder):
    """InternVL over one tile."""

    def forward(self, pixels: Tensor) -> Tensor:
        config = self.model.config
        layer, strategy = config.vision_feature_layer, config.vision_feature_select_strategy
        features = self.model.get_image_features(
            pixels[None], vision_feature_layer=layer, vision_feature_select_strategy=strategy
        )
        rows: Tensor = features.pooler_output[0]
        return rows


class _LlavaOneVision(_TileEncoder):
    """Encoder of a tile of LLaVA-OneVision or LLaVA-NeXT: its rows, and the row that ends a line of the picture."""

    def forward(self, pixels: Tensor) -> Tensor:
        config = self.model.config
        found = self.model.vision_tower(pixels[None], output_hidden_states=True).hidden_states
        rows = self.model.multi_modal_projector(found[config.vision_feature_layer])[0]
        kept = rows[1:] if config.vision_feature_select_strategy == "default" else rows
        return torch.cat([kept, self.model.image_newline[None]])


class _Features(_TileEncoder):
    """Gemma 3 or LLaVA 1.5 over one tile."""

    def forward(self, pixels: Tensor) -> Tensor:
        rows: Tensor = self.model.get_image_features(pixels[None]).pooler_output[0]
        return rows


ENCODERS: dict[str, Callable[[nn.Module, ImageSettings], _TileEncoder | PatchEncoder]] = {
    "gemma3": _Features, "gemma4": Gemma4Encoder, "idefics3": _Idefics3, "internvl": _InternVL,
    "lfm2_vl": Lfm2VLEncoder, "llava": _Features, "llava_onevision": _LlavaOneVision, "pixtral": PixtralEncoder,
    "qwen_vl": QwenVLEncoder,
}  # fmt: skip
"""Family -> module over the inputs of a run."""
