"""Domino's head: DFlash's block, and a correction of each position's logits by a GRU over the tokens before it."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from speccompile.compiler.step.decoder import CacheShape
from speccompile.compiler.step.draft import Drafter
from speccompile.compiler.step.draft.block import Slots, of_parents
from speccompile.drafters.context import DrafterContext, token_by_token
from speccompile.drafters.dflash.drafter import DFlashReader
from speccompile.drafters.weights import TargetEmbeddings, load_head
from speccompile.plan.head import HeadPlan


def make(context: DrafterContext) -> Drafter:
    """Return the drafter of the planned drafts from one pass. A tree of the best nodes is DominoTree's (2607.08642)."""
    reader = DominoReader(context.head, context.shape, context.ends(), context.drafter.tree.depth)
    return token_by_token(context, load_head(reader, context.head))


class PrefixGru(nn.Module):
    """A gated recurrent unit without biases, with the names and gates (reset, update, new) of torch's GRU."""

    def __init__(self, inputs: int, size: int) -> None:
        super().__init__()
        self.weight_ih_l0 = nn.Parameter(torch.zeros(3 * size, inputs))
        self.weight_hh_l0 = nn.Parameter(torch.zeros(3 * size, size))

    def forward(self, x: Tensor, state: Tensor) -> Tensor:
        """Return the states float32 [B, T, g] after x [B, T, h], given those before."""
        reset, update, new = functional.linear(x, self.weight_ih_l0).chunk(3, -1)
        kept_reset, kept_update, kept_new = functional.linear(state, self.weight_hh_l0).chunk(3, -1)
        new = torch.tanh(new + torch.sigmoid(reset + kept_reset) * kept_new)
        update = torch.sigmoid(update + kept_update)
        return (1 - update) * new + update * state


class DominoReader(DFlashReader):
    """DFlash with Domino's cell, whose state is zero before the anchor."""

    def __init__(self, head: HeadPlan, shape: CacheShape, ends: TargetEmbeddings, drafts: int) -> None:
        super().__init__(head, shape, ends, drafts)
        layers, said = head.layers, head.switches
        assert layers is not None, "Domino has layers"
        self.state_size, rank = int(said["gru_hidden_dim"] or 0), int(said["emb_dim"] or 0)
        self.first_corrected = int(said["pure_draft_prefix_len"] or 0)
        self.prefix_gru = PrefixGru(layers.hidden_size, self.state_size)
        self.up_proj = nn.Linear(layers.hidden_size + self.state_size, rank, bias=False)
        self.out_proj = nn.Linear(rank, self.size, bias=False)

    def slots(self, hidden: Tensor) -> "DominoSlots":
        return DominoSlots(self, hidden)


class DominoSlots(Slots):
    """Block positions in turn. The cell reads every token, also before positions that are not corrected."""

    state: Tensor | None = None

    def __init__(self, reader: DominoReader, hidden: Tensor) -> None:
        super().__init__(reader, hidden)
        self.reader = reader

    def after(self, slot: int, before: Tensor, parents: Tensor | None = None) -> Tensor:
        reader, logits = self.reader, super().after(slot, before)
        embedded = reader.embed_tokens(before)
        state = of_parents(self.state, parents)
        if state is None:
            state = embedded.new_zeros(*embedded.shape[:2], reader.state_size)
        self.state = reader.prefix_gru(embedded, state)
        if slot < reader.first_corrected:
            return logits
        hidden = self.hidden[:, slot : slot + 1].expand(-1, before.shape[1], -1)
        corrected: Tensor = logits + reader.out_proj(
            functional.silu(reader.up_proj(torch.cat([hidden, self.state], -1)))
        )
        return corrected
