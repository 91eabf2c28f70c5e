"""Pictures among the tokens that a drafter reads: rows in place of the next tokens, and positions on three axes."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from torch import Tensor, nn

from speccompile.bundle.media import AXES
from speccompile.compiler.step.draft import Accepted
from speccompile.compiler.step.media_rows import MediaRows


class PicturedPath:
    """Pictures among the tokens of a round's path. Without any, tokens and positions stay as they are."""

    def __init__(self, media: MediaRows | None, accepted: Accepted) -> None:
        """media: as the drafter reads them, None if it reads none."""
        self.media, self.accepted = media, accepted

    def merged(self, embed: Callable[[Tensor], Tensor], tokens: Tensor) -> Tensor:
        """Return the embeddings [B, C, h] of the tokens int64 [B, C] after the rows of the catch-up, and rows of
        pictures in their places."""
        if self.media is None:
            return embed(tokens)
        return self.media.merged(embed, tokens, self.accepted.media, self._caught_up(self.accepted.media_next))

    def offsets(self) -> Tensor | None:
        """Return what to add to the positions of the catch-up's rows, int64 [B, 3, C]; None for nothing."""
        if self.media is None or not self.media.axes:
            return None
        return self._caught_up(self.accepted.media_offsets)

    def offsets_behind(self, width: int) -> Tensor | None:
        """Return what to add to the positions of `width` tokens behind the path, int64 [B, 3, width]; None for
        nothing."""
        if self.media is None or not self.media.axes:
            return None
        assert self.accepted.media_behind is not None
        return self.accepted.media_behind[:, None, None].expand(-1, AXES, width)

    def turning(self, model: nn.Module, offsets: Tensor | None) -> AbstractContextManager[None]:
        """See `MediaRows.turning`."""
        return nullcontext() if self.media is None else self.media.turning(model, offsets)

    def _caught_up(self, values: Tensor | None) -> Tensor:
        """Return values [B, .., W] of the window at the rows of the catch-up, [B, .., C]."""
        assert values is not None
        assert self.accepted.catch_up is not None
        return values.index_select(-1, self.accepted.catch_up.clamp(max=values.shape[-1] - 1))
