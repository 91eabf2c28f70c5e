"""Embeddings of a window in which rows of pictures stand in the place of tokens."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class MediaRows:
    """Rows of pictures in a window. width: of a row."""

    width: int

    def __call__(self, model: nn.Module, window: Tensor, media: Tensor, rows: Tensor) -> Tensor:
        """Return float32 [B, T, H]: the embeddings of the window's tokens int64 [B, T], or the rows of media float32
        [F, H] that `rows` int64 [B, T] counts from 1. A placeholder's own id is never looked up."""
        rows = of_window(rows, window)
        is_media = rows > 0
        embeddings = model.get_input_embeddings()(torch.where(is_media, 0, window))
        chosen = media.index_select(0, (rows - 1).clamp(min=0).flatten()).reshape(*rows.shape, -1)
        return torch.where(is_media[..., None], chosen, embeddings)


def of_window(values: Tensor, window: Tensor) -> Tensor:
    """Return values [B, .., T] of a window's tokens int64 [B, T], gathered: a trace then sees one width, and not two
    that happen to be equal."""
    places = torch.arange(window.shape[1], device=window.device)
    return values.gather(-1, places.expand(*values.shape[:-1], -1))
