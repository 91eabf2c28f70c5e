"""Medusa's heads (Cai et al. 2024): residual blocks and a projection for every draft depth, on one hidden state."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from speccompile.compiler.step.draft import Accepted, Drafter, State
from speccompile.compiler.step.draft.network import DraftNetwork, DraftRound
from speccompile.drafters.context import DrafterContext, token_by_token
from speccompile.drafters.numbered import count_numbered
from speccompile.drafters.weights import Head, draft_vocabulary, load_head
from speccompile.plan.head import HeadPlan


def make(context: DrafterContext) -> Drafter:
    """Return the drafter of the planned tree. The graph has no heads beyond the tree's depth."""
    reader = load_reader(context)
    reader.narrow(context.drafter.tree.depth)
    return token_by_token(context, reader)


def load_reader(context: DrafterContext) -> "MedusaReader":
    """Return all heads with their weights."""
    has_own = any(name.startswith("lm_head") for name in context.head.tensors)
    return load_head(MedusaReader(context.head, None if has_own else context.ends().head), context.head)


class Block(nn.Module):
    """Residual layers x + SiLU(W x + b)."""

    def __init__(self, hidden_size: int, layers: int, *, has_bias: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(hidden_size, hidden_size, bias=has_bias) for _ in range(layers)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + functional.silu(layer(x))
        return x


class MedusaReader(DraftNetwork):
    """Medusa's heads. Head i returns logits of the token at position p + i + 2, given the final hidden state at p."""

    has_cache = False

    def __init__(self, head: HeadPlan, target_head: Head | None) -> None:
        """target_head: the target's output head, which all heads use if they have no projections."""
        super().__init__()
        self.taps, self.vocabulary, self.size = head.taps, draft_vocabulary(head), head.draft_vocabulary_size
        count, has_bias = count_numbered(head.tensors, "blocks"), "blocks.0.layers.0.bias" in head.tensors
        layers = count_numbered(head.tensors, "blocks.0.layers")
        self.blocks = nn.ModuleList([Block(head.hidden_size, layers, has_bias=has_bias) for _ in range(count)])
        rows = {name: source.shape[0] for name, source in head.tensors.items() if name.startswith("lm_head")}
        linears = {name: nn.Linear(head.hidden_size, size, bias=False) for name, size in rows.items()}
        self.lm_head = linears.get("lm_head.weight", target_head)
        self.lm_heads = nn.ModuleList(
            [linears[f"lm_heads.{i}.weight"] for i in range(count)] if not self.lm_head else []
        )

    def narrow(self, depth: int) -> None:
        """Keep the first `depth` heads, and the rows of the draft vocabulary in larger projections."""
        self.blocks, self.lm_heads = self.blocks[:depth], self.lm_heads[:depth]
        for each in (self.lm_head, *self.lm_heads):
            if self.vocabulary is not None and isinstance(each, nn.Linear) and each.out_features > self.size:
                each.weight = nn.Parameter(each.weight[self.vocabulary.ids], requires_grad=False)
                each.out_features = self.size

    def states(self) -> list[State]:
        return []

    def projection(self, head: int) -> nn.Module:
        """Return the projection of a head's hidden states to logits."""
        return self.lm_heads[head] if self.lm_head is None else self.lm_head

    def logits(self, x: Tensor) -> list[Tensor]:
        """Return every head's logits float32 [B, 1, V] for hidden states [B, 1, H]."""
        hidden = [block(x) for block in self.blocks]
        if self.lm_head is None:
            return [self.projection(head)(each) for head, each in enumerate(hidden)]
        return list(self.lm_head(torch.cat(hidden, 1)).split(1, 1))  # a single product reads the weights once

    def begin(self, accepted: Accepted, states: list[Tensor]) -> "MedusaReading":
        return MedusaReading(self, accepted)


class MedusaReading(DraftRound):
    """A round of Medusa. All logits depend on the hidden state of the last accepted token alone."""

    def __init__(self, reader: MedusaReader, accepted: Accepted) -> None:
        assert accepted.features is not None, "a drafter with taps is given features"
        last = (accepted.n_path - 1).clamp(min=0)[:, None, None].expand(-1, 1, accepted.features.shape[2])
        self.bonus = accepted.path.gather(1, accepted.n_path[:, None])
        self.ahead = reader.logits(accepted.features.gather(1, last))
        self.logits = self.ahead[0]

    def forward_drafts(self, tokens: Tensor, depth: int, ancestors: Tensor, parents: Tensor) -> Tensor:
        """See `DraftRound.forward_drafts`. The logits do not depend on the tokens."""
        return self.ahead[depth]

    def commit(self) -> list[Tensor]:
        return []
