"""Hydra's heads (Ankner et al. 2024): head i reads a hidden state of the target, the bonus token and i drafts."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from speccompile.compiler.step.attention import CachedPass
from speccompile.compiler.step.decoder import CacheShape
from speccompile.compiler.step.draft import Accepted, Drafter, State
from speccompile.compiler.step.draft.layers import Layer, Rotary, layer_states, make_norm
from speccompile.compiler.step.draft.network import DraftNetwork, DraftRound
from speccompile.drafters.context import DrafterContext, token_by_token
from speccompile.drafters.numbered import count_numbered
from speccompile.drafters.weights import load_head
from speccompile.plan.head import HeadPlan


def make(context: DrafterContext) -> Drafter:
    """Return the autoregressive drafter, for any tree. The graph has no heads beyond the tree's depth."""
    reader, depth = load_reader(context), context.drafter.tree.depth
    reader.mlps, reader.lm_heads = reader.mlps[:depth], reader.lm_heads[:depth]
    return token_by_token(context, reader)


def load_reader(context: DrafterContext) -> "HydraReader":
    """Return all heads with their weights, and with the target's embedding if they need one and have none."""
    reader = load_head(HydraReader(context.head, context.shape), context.head)
    if reader.is_grounded and reader.embed_tokens is None:
        reader.embed_tokens = context.ends().embed
    return reader


class ResidualBlock(nn.Module):
    """R x + SiLU(W x + b); R is the identity if the width does not change."""

    def __init__(self, inputs: int, hidden_size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, hidden_size)
        self.res_connection = nn.Linear(inputs, hidden_size) if inputs != hidden_size else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.res_connection(x) + functional.silu(self.linear(x))


class HydraReader(DraftNetwork):
    """Hydra's heads. Hydra++ reads the features through a decoder layer over all tokens so far; Hydra has no cache."""

    def __init__(self, head: HeadPlan, shape: CacheShape) -> None:
        super().__init__()
        self.taps, self.size, self.shape, self.prefix = head.taps, head.vocabulary_size, shape, head.layers
        self.is_grounded, self.has_cache = bool(head.switches["grounded_heads"]), head.layers is not None
        hidden, heads = head.hidden_size, count_numbered(head.tensors, "mlps")
        layers = count_numbered(head.tensors, "mlps.0")

        def mlp(number: int) -> nn.Sequential:
            widths = [(number + 2) * hidden if self.is_grounded else hidden, *[hidden] * (layers - 1)]
            return nn.Sequential(*(ResidualBlock(width, hidden) for width in widths))

        self.mlps = nn.ModuleList([mlp(number) for number in range(heads)])
        self.lm_heads = nn.ModuleList([nn.Linear(hidden, head.vocabulary_size) for _ in range(heads)])
        has_own = "embed_tokens.weight" in head.tensors
        self.embed_tokens: nn.Module | None = nn.Embedding(head.vocabulary_size, hidden) if has_own else None
        if head.layers is not None:
            self.layers = nn.ModuleList([Layer(head.layers, 0)])
            self.norm, self.rotary = make_norm(head.layers), Rotary(head.layers, shape.max_length)

    def states(self) -> list[State]:
        return [] if self.prefix is None else layer_states(self.prefix, self.shape)

    def embed(self, tokens: Tensor) -> Tensor:
        assert self.embed_tokens is not None, "grounded heads read tokens"
        embedded: Tensor = self.embed_tokens(tokens)
        return embedded

    def logits(self, number: int, x: Tensor) -> Tensor:
        """Return logits float32 [B, T, V] of one head for its input [B, T, width]."""
        logits: Tensor = self.lm_heads[number](self.mlps[number](x))
        return logits

    def begin(self, accepted: Accepted, states: list[Tensor]) -> "HydraReading":
        return HydraReading(self, accepted, states)

    def read_prefix(self, features: Tensor, accepted: Accepted, current: CachedPass) -> Tensor:
        """Apply Hydra++'s layer to the features [B, C, H] of the accepted tokens, with padding after them."""
        assert accepted.catch_up is not None, "a drafter with caches catches up"
        catch_up = accepted.catch_up
        positions = (accepted.length[:, None] + catch_up).clamp(max=self.shape.max_length - 1)
        causal = (catch_up[None, :] <= catch_up[:, None]).expand(features.shape[0], -1, -1)
        current.set_positions(positions, positions, causal)
        read: Tensor = self.norm(self.layers[0](features, current, self.rotary(positions)))
        return read


class HydraReading(DraftRound):
    """A round of Hydra. The constructor processes the hidden state of the last accepted token, and the bonus token."""

    def __init__(self, reader: HydraReader, accepted: Accepted, states: list[Tensor]) -> None:
        assert accepted.features is not None, "a drafter with taps is given features"
        self.reader, features = reader, accepted.features
        self.bonus = accepted.path.gather(1, accepted.n_path[:, None])
        self.current: CachedPass | None = None
        if reader.prefix is not None:
            assert accepted.catch_up is not None, "a drafter with caches catches up"
            features = features.index_select(1, accepted.catch_up.clamp(max=features.shape[1] - 1))
            self.current = CachedPass(states, accepted.length, list(reader.prefix.windows))
            features = reader.read_prefix(features, accepted, self.current)
        last = (accepted.n_path - 1).clamp(min=0)[:, None, None].expand(-1, 1, features.shape[2])
        # [B, T, (depth + 2) H]: hidden state and embeddings on the path to each token
        self.paths = features.gather(1, last)
        if reader.is_grounded:
            self.paths = torch.cat([self.paths, reader.embed(self.bonus)], 2)
        self.logits = reader.logits(0, self.paths)

    def forward_drafts(self, tokens: Tensor, depth: int, ancestors: Tensor, parents: Tensor) -> Tensor:
        """See `DraftRound.forward_drafts`."""
        if self.reader.is_grounded:
            before = self.paths.gather(1, parents[:, :, None].expand(-1, -1, self.paths.shape[2]))
            self.paths = torch.cat([before, self.reader.embed(tokens)], 2)
        return self.reader.logits(depth, self.paths)

    def commit(self) -> list[Tensor]:
        """Return the caches with the rows of the accepted tokens. The padding after them is never read."""
        return [] if self.current is None else self.current.commit(self.current.rows())
