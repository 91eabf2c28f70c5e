"""ReDrafter's head (Zhang et al. 2024): a recurrent state of the bonus token and the drafts, beside a hidden state of
the target that stays the same for a whole round."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from speccompile.compiler.step.draft import Accepted, Drafter, State
from speccompile.compiler.step.draft.network import DraftNetwork, DraftRound
from speccompile.drafters.context import DrafterContext, token_by_token
from speccompile.drafters.numbered import count_numbered
from speccompile.drafters.redrafter.reading import RNN
from speccompile.drafters.weights import TargetEmbeddings, load_head
from speccompile.plan.head import HeadPlan


def make(context: DrafterContext) -> Drafter:
    """Return the autoregressive drafter, for any tree."""
    return token_by_token(context, load_reader(context))


def load_reader(context: DrafterContext) -> "ReDrafterReader":
    """Return the head with its weights, and with the target's embedding."""
    return load_head(ReDrafterReader(context.head, context.ends()), context.head)


class ReDrafterReader(DraftNetwork):
    """The cell and the head; it has no cache."""

    has_cache = False

    def __init__(self, head: HeadPlan, ends: TargetEmbeddings) -> None:
        super().__init__()
        self.taps, self.size, self.cell = head.taps, head.vocabulary_size, str(head.switches["cell"])
        hidden, width = head.hidden_size, int(head.switches["exit_dim"] or 0)
        self.embed_tokens = ends.embed
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(count_numbered(head.tensors, "blocks")))
        self.output = nn.Linear(width, head.vocabulary_size, bias=False)
        self.input_proj = nn.Linear(2 * hidden, width) if width != 2 * hidden else nn.Identity()
        if self.cell == RNN:
            self.rnn_u, self.rnn_w = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden, bias=False)

    def states(self) -> list[State]:
        return []

    def follow(self, tokens: Tensor, state: Tensor) -> Tensor:
        """Return the states float32 [B, T, H] after tokens int64 [B, T], given those before them."""
        embedded: Tensor = self.embed_tokens(tokens)
        return functional.silu(self.rnn_w(embedded) + self.rnn_u(state)) if self.cell == RNN else embedded + state

    def logits(self, context: Tensor, state: Tensor) -> Tensor:
        """Return logits float32 [B, T, V] after states [B, T, H]. context float32 [B, T, H], or [B, 1, H] for all."""
        x = self.input_proj(torch.cat([context.expand(state.shape), state], 2))
        for block in self.blocks:
            x = x + functional.silu(block(x))
        logits: Tensor = self.output(x)
        return logits

    def begin(self, accepted: Accepted, states: list[Tensor]) -> "ReDrafterReading":
        return ReDrafterReading(self, accepted)


class ReDrafterReading(DraftRound):
    """A round. The constructor reads the hidden state before the bonus token, and the bonus token."""

    def __init__(self, reader: ReDrafterReader, accepted: Accepted) -> None:
        assert accepted.features is not None, "a drafter with taps is given features"
        self.reader = reader
        last = (accepted.n_path - 1).clamp(min=0)[:, None, None].expand(-1, 1, accepted.features.shape[2])
        self.context = accepted.features.gather(1, last)
        self.bonus = accepted.path.gather(1, accepted.n_path[:, None])
        self.state = reader.follow(self.bonus, torch.zeros_like(self.context))
        self.logits = reader.logits(self.context, self.state)

    def forward_drafts(self, tokens: Tensor, depth: int, ancestors: Tensor, parents: Tensor) -> Tensor:
        """See `DraftRound.forward_drafts`."""
        before = self.state.gather(1, parents[:, :, None].expand(-1, -1, self.state.shape[2]))
        self.state = self.reader.follow(tokens, before)
        return self.reader.logits(self.context, self.state)

    def commit(self) -> list[Tensor]:
        return []
