"""PARD: one causal pass over the path's last tokens, the bonus token and a mask token for every draft but the first."""

import torch
from torch import Tensor

from speccompile.compiler.step.decoder import Decoder
from speccompile.compiler.step.draft import Accepted, Drafter
from speccompile.compiler.step.draft.language import DecoderReader, DecoderReading
from speccompile.compiler.step.draft.masked import ParallelDraftRound, draft_row_indices, mask_token_attention
from speccompile.compiler.step.draft.own_text import OwnTokens
from speccompile.drafters.context import DrafterContext, token_by_token


def make(context: DrafterContext) -> Drafter:
    """Return the drafter of a chain, or of the best nodes of one pass, with the recipe's model."""
    (decoder,) = context.drafters()
    drafter = context.drafter
    assert drafter.mask_token is not None, "the plan reads it"
    size, own = context.vocabulary_size, context.own_tokens()
    return token_by_token(context, PardReader(decoder, size, drafter.mask_token, drafter.tree.depth - 1, own))


class PardReader(DecoderReader):
    """A decoder with `masks` mask tokens after the text, which are not committed."""

    def __init__(
        self, decoder: Decoder, target_size: int, mask_token: int, masks: int, own: OwnTokens | None = None
    ) -> None:
        super().__init__(decoder, target_size=target_size, own=own)
        self.can_commit_drafts = False
        self.mask_token, self.masks = mask_token, masks

    def begin(self, accepted: Accepted, states: list[Tensor]) -> DecoderReading:
        return PardReading(self, accepted, states)


class PardReading(ParallelDraftRound, DecoderReading):
    """A round of PARD."""

    reader: PardReader

    def _read_path(self, tokens: Tensor, causal: Tensor) -> None:
        if not self.reader.masks:
            super()._read_path(tokens, causal)
            return
        masks, (batch, width) = self.reader.masks, tokens.shape
        behind = self.decoder.clamp(self.end[:, None] + 1 + torch.arange(masks, device=tokens.device))
        positions = torch.cat([self.row_positions, behind], 1)
        self.current.set_positions(positions, positions, mask_token_attention(causal, self.seen, masks))
        tokens = torch.cat([tokens, torch.full((batch, masks), self.reader.mask_token, device=tokens.device)], 1)
        self.depths = self.reader.run(self.current, tokens, draft_row_indices(self.last[:, None], width, masks))
        self.logits = self.depths[:, :1]
        self.caught_up = [rows[:, :, :width] for rows in self.current.rows()]
