"""Mask rows after the accepted path, which give a draft each in the same pass (PARD, An et al. 2025; P-EAGLE)."""

from abc import abstractmethod

import torch
from torch import Tensor

from speccompile.compiler.step.draft.paired import PairedReading


def mask_token_attention(causal: Tensor, seen: Tensor, masks: int) -> Tensor:
    """Return the mask bool [B, C + M, C + M] over the rows of a catch-up and the M mask rows after them.

    causal bool [B, C, C] of the catch-up; seen bool [B, C]: its rows without the padding. A mask row sees all of these
    and the mask rows before it. The catch-up sees no mask row.
    """
    offsets = torch.arange(masks, device=seen.device)
    own = (offsets <= offsets[:, None]).expand(seen.shape[0], -1, -1)
    above = torch.cat([causal, (causal[:, :, :1] & False).expand(-1, -1, masks)], 2)
    return torch.cat([above, torch.cat([seen[:, None, :].expand(-1, masks, -1), own], 2)], 1)


def with_masks_at(rows: Tensor, last: Tensor, masks: int) -> Tensor:
    """Return the mask over whole texts for training, bool [B, T + A M, T + A M].

    rows int64 [T]: of the text; a row sees itself and those before it. last int64 [B, A]: rows that M mask rows follow.
    A mask row sees what its last row sees, and the mask rows of its group up to itself."""
    batch, count = last.shape
    reach = torch.cat([rows.expand(batch, -1), last.repeat_interleave(masks, 1)], 1)
    own = torch.arange(count * masks, device=rows.device)
    block = (own[:, None] // max(masks, 1) == own // max(masks, 1)) & (own <= own[:, None])
    masked = torch.cat([block.new_zeros(len(rows), len(own)), block])
    return torch.cat([rows <= reach[..., None], masked.expand(batch, -1, -1)], -1)


def draft_row_indices(last: Tensor, width: Tensor | int, masks: int) -> Tensor:
    """Return the indices of the rows that give drafts, int64 [B, 1 + M], in a pass over `width` rows and M mask rows
    after them. last int64 [B, 1]: the last true row."""
    behind = width + torch.arange(masks, device=last.device)
    return torch.cat([last, behind.expand(last.shape[0], -1)], 1)


class ParallelDraftRound:
    """Mixin of a round whose constructor computes the logits of all depths, `depths` float32 [B, 1 + M, V]."""

    depths: Tensor

    def forward_drafts(self, tokens: Tensor, depth: int, ancestors: Tensor, parents: Tensor) -> Tensor:
        """See `DraftRound.forward_drafts`: earlier drafts make no difference."""
        return self.depths[:, depth : depth + 1]


class MaskedPairedRound(ParallelDraftRound, PairedReading):
    """A round over rows of features and tokens, with mask rows after them that are not committed."""

    @abstractmethod
    def masks(self) -> tuple[int, int]:
        """Return the number of mask rows, and their token."""

    @abstractmethod
    def mask_rows(self, x: Tensor) -> Tensor:
        """Return what mask rows hold in place of features, [1 or B, 1, h]. x [B, C, h]: the true rows."""

    def _read_path(self, x: Tensor, embedded: Tensor, causal: Tensor) -> None:
        masks, mask_token = self.masks()
        if not masks:
            super()._read_path(x, embedded, causal)
            return
        reader, (batch, width, _) = self.reader, x.shape
        behind = reader.clamp(self.end[:, None] + torch.arange(masks, device=x.device))
        positions = torch.cat([self.row_positions, behind], 1)
        self.current.set_positions(positions, positions, mask_token_attention(causal, self.seen, masks))
        x = torch.cat([x, self.mask_rows(x).expand(batch, masks, -1)], 1)
        mask = reader.embed(torch.full((batch, masks), mask_token, device=x.device))
        turn = reader.rotary(positions, self._offsets(masks))
        hidden = reader.run(x, torch.cat([embedded, mask], 1), self.current, turn).hidden
        indices = draft_row_indices(self.last, width, masks)[:, :, None].expand(-1, -1, hidden.shape[2])
        self.depths = reader.logits(hidden.gather(1, indices))
        self.logits = self.depths[:, :1]
        self.caught_up = [rows[:, :, :width] for rows in self.current.rows()]

    def _offsets(self, masks: int) -> Tensor | None:
        """Return what to add to the positions of the true rows and of the masks after them, int64 [B, 3, C + M]; None
        for nothing."""
        own, behind = self.pictures.offsets(), self.pictures.offsets_behind(masks)
        return None if own is None or behind is None else torch.cat([own, behind], 2)
