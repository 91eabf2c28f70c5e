"""Rows of pictures in a window: embeddings, positions on three axes, and addends after early layers."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from speccompile.compiler.step.layers import find_layers
from speccompile.compiler.step.monkeypatch import patched_attribute
from speccompile.errors import UnsupportedModelError


@dataclass(frozen=True)
class MediaRows:
    """Rows of pictures in a window. width: of a row with all its parts; all other fields: see `ImageSettings`."""

    width: int
    both_ways: bool = False
    axes: tuple[int, ...] = ()
    stacked: int = 0
    in_windows: bool = False
    padded: tuple[int, ...] = ()

    def __call__(self, model: nn.Module, window: Tensor, media: Tensor, rows: Tensor) -> Tensor:
        """Return float32 [B, T, H]: the embeddings of the window's tokens int64 [B, T], or the rows of media float32
        [F, W] that `rows` int64 [B, T] counts from 1. A placeholder's own id is never looked up."""
        return self.merged(model.get_input_embeddings(), self._looked_up(window), media, of_window(rows, window))

    def merged(
        self, embed: Callable[[Tensor], Tensor], tokens: Tensor, media: Tensor | None, rows: Tensor | None
    ) -> Tensor:
        """Return float32 [B, T, H]: embeddings of tokens int64 [B, T], or rows of media in their places, as
        `__call__`."""
        assert media is not None and rows is not None  # noqa: PT018
        is_media = rows > 0
        embeddings = embed(torch.where(is_media, 0, tokens))
        return torch.where(is_media[..., None], self._part(0, tokens, media, rows), embeddings)

    def turning(self, model: nn.Module, offsets: Tensor | None) -> AbstractContextManager[None]:
        """Let a model, inside a `with` block, rotate tokens by their positions plus `offsets` int64 [B, 3, T]; no
        change without any."""
        if offsets is None:
            return nullcontext()
        rotary = _rotary(model)
        return patched_attribute(rotary, "forward", _rotated(rotary, offsets, self.axes))

    @contextmanager
    def seeing(
        self, model: nn.Module, window: Tensor, media: Tensor | None, rows: Tensor | None, offsets: Tensor | None
    ) -> Iterator[None]:
        """Let a model, inside a `with` block, rotate a window's tokens by their positions plus `offsets` int64 [B, 3,
        T], and add a row's further parts after its first layers."""
        with ExitStack() as stack:
            stack.enter_context(self.turning(model, None if offsets is None else of_window(offsets, window)))
            for number, layer in enumerate(find_layers(model)[: self.stacked] if self.stacked else (), 1):
                assert media is not None and rows is not None  # noqa: PT018
                is_media = of_window(rows, window)[..., None] > 0
                added = torch.where(is_media, self._part(number, window, media, rows), 0.0)
                stack.enter_context(layer.register_forward_hook(_adding(added)))
            for module in model.modules() if self.padded else ():
                if hasattr(module, "get_per_layer_inputs"):
                    stack.enter_context(_looking_up(module, self._looked_up(window)))
            yield

    def _looked_up(self, window: Tensor) -> Tensor:
        """Return the tokens whose embeddings are read: that of padding for placeholders, also for one that the model
        has chosen itself (Gemma 4)."""
        return _replaced(window, self.padded)

    def _part(self, number: int, window: Tensor, media: Tensor, rows: Tensor) -> Tensor:
        """Return a part of the window's rows, float32 [B, T, H]; of any row where there is a token."""
        width = self.width // (1 + self.stacked)
        rows = of_window(rows, window)
        part = media[:, number * width : (number + 1) * width]
        return part.index_select(0, (rows - 1).clamp(min=0).flatten()).reshape(*rows.shape, -1)


def padding(model: nn.Module, padded: Sequence[int]) -> nn.Module:
    """Let all embeddings of a model look up the last of these tokens in place of the others, and return it: what a
    multimodal model does with placeholders, and its text decoder alone does not."""
    for module in model.modules() if padded else ():
        if isinstance(module, nn.Embedding):
            module.register_forward_pre_hook(lambda _, given: (_replaced(given[0], padded),))
    return model


def _replaced(tokens: Tensor, padded: Sequence[int]) -> Tensor:
    for token in padded[:-1]:
        tokens = torch.where(tokens == token, padded[-1], tokens)
    return tokens


def of_window(values: Tensor, window: Tensor) -> Tensor:
    """Return values [B, .., T] of a window's tokens int64 [B, T], gathered: a trace then sees one width, and not two
    that happen to be equal."""
    places = torch.arange(window.shape[1], device=window.device)
    return values.gather(-1, places.expand(*values.shape[:-1], -1))


def same_picture(blocks: Tensor, window: Tensor) -> Tensor:
    """Return bool [B, T, T]: whether two of a window's tokens are rows of one picture. blocks int64 [B, T]: numbers of
    pictures, 0 for tokens."""
    blocks = of_window(blocks, window)
    return (blocks[:, :, None] == blocks[:, None, :]) & (blocks > 0)[:, :, None]


def _looking_up(module: nn.Module, window: Tensor) -> AbstractContextManager[None]:
    """Let a module read its embeddings of every layer for these tokens, inside a `with` block."""
    own = module.get_per_layer_inputs
    return patched_attribute(module, "get_per_layer_inputs", lambda ids, embeddings=None: own(window))


def _adding(added: Tensor) -> Callable[..., Any]:
    """Return a hook that adds to the hidden states that a layer gives."""

    def add(layer: nn.Module, given: Any, found: Any) -> Any:
        return (found[0] + added, *found[1:]) if isinstance(found, tuple) else found + added

    return add


def _rotary(model: nn.Module) -> nn.Module:
    """Return the module that makes a model's rotary embeddings. Raise UnsupportedModelError for several or none."""
    found = [module for name, module in model.named_modules() if name.endswith("rotary_emb")]
    if len(found) != 1 or not isinstance(getattr(found[0], "inv_freq", None), Tensor):
        raise UnsupportedModelError(
            f"{type(model).__name__} has {len(found)} modules for rotary embeddings, expected one, which positions on "
            "three axes replace",
            hint="remove target.images: the text decoder alone is compiled",
        )
    return found[0]


def _rotated(rotary: nn.Module, offsets: Tensor, axes: tuple[int, ...]) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return a rotary module's forward at positions plus offsets int64 [B, 3, T]. axes: of each frequency."""

    def forward(hidden: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        if position_ids.ndim == 3:  # one position a token, on all axes
            position_ids = position_ids[0]
        return on_axes(rotary, axes, hidden, position_ids, offsets)

    return forward


def on_axes(
    rotary: nn.Module, axes: tuple[int, ...], hidden: Tensor, positions: Tensor, offsets: Tensor
) -> tuple[Tensor, Tensor]:
    """Return cosines and sines [B, T, D], in the dtype of `hidden`, of positions int64 [B, T] plus offsets int64
    [B, 3, T]. axes: of each frequency of the rotary module."""
    chosen = torch.tensor(axes, device=offsets.device)
    places = (positions[:, None] + offsets).index_select(1, chosen).transpose(1, 2)
    angles = places.float() * rotary.inv_freq.float()  # [B, T, D / 2]
    both = torch.cat([angles, angles], 2)
    scale = rotary.attention_scaling
    return (both.cos() * scale).to(hidden.dtype), (both.sin() * scale).to(hidden.dtype)
