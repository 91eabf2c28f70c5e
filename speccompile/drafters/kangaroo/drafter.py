"""Kangaroo's adapter (Liu et al. 2024), which reads the output of the target's first layers."""

import torch
from torch import Tensor, nn

from speccompile.compiler.step.attention import CachedPass
from speccompile.compiler.step.decoder import Decoder
from speccompile.compiler.step.draft import Accepted, Drafter, State
from speccompile.compiler.step.draft.layers import Attention, Rotary, Turn, layer_states, make_norm
from speccompile.compiler.step.draft.network import CachedDraftRound, DraftNetwork
from speccompile.compiler.step.draft.target_layers import TargetLayers, borrowed_states
from speccompile.compiler.step.taps import Taps
from speccompile.drafters.context import DrafterContext, token_by_token
from speccompile.drafters.kangaroo.reading import exit_layer
from speccompile.drafters.layer_skip.drafter import skip_layers
from speccompile.drafters.weights import TargetEmbeddings, load_head
from speccompile.plan.head import HeadPlan
from speccompile.plan.layers import LayerShape


def make(context: DrafterContext) -> Drafter:
    """Return the drafter of a chain, which ends after a draft of low confidence."""
    decoder = skip_layers(context.target(), range(exit_layer(context.head)))
    adapter = load_head(Adapter(context.head, context.shape.max_length), context.head)
    return token_by_token(context, KangarooReader(context.head, decoder, adapter), context.drafter.threshold)


class AdapterLayer(nn.Module):
    """Attention layer without an MLP."""

    def __init__(self, layers: LayerShape, index: int) -> None:
        super().__init__()
        self.self_attn, self.input_layernorm = Attention(layers, index), make_norm(layers)

    def forward(self, x: Tensor, current: CachedPass, turn: Turn) -> Tensor:
        return x + self.self_attn(self.input_layernorm(x), current, turn)

    def add_rows(self, x: Tensor, current: CachedPass, turn: Turn) -> None:
        """Add keys and values of rows whose output is not needed."""
        self.self_attn.add_rows(self.input_layernorm(x), current, turn)


class Adapter(nn.Module):
    """Modules of the adapter, with the parameter names of its file."""

    def __init__(self, head: HeadPlan, max_length: int) -> None:
        super().__init__()
        assert head.layers is not None, "an adapter has layers"
        self.shape = head.layers
        self.layers = nn.ModuleList(AdapterLayer(head.layers, index) for index in range(head.layers.count))
        self.norm = make_norm(head.layers)
        self.rotary = Rotary(head.layers, max_length)

    def forward(self, x: Tensor, current: CachedPass, positions: Tensor) -> Tensor:
        """Map the output of the target's first layers [B, T, h] to the input of its output head."""
        turn = self.rotary(positions)
        for layer in self.layers:
            x = layer(x, current, turn)
        return self.norm(x)

    def add_rows(self, x: Tensor, current: CachedPass, positions: Tensor) -> None:
        """Apply the layers only as far as needed to add the rows' keys and values."""
        turn = self.rotary(positions)
        *before, last = self.layers
        for layer in before:
            x = layer(x, current, turn)
        last.add_rows(x, current, turn)


class KangarooReader(DraftNetwork):
    """Row p of the adapter is the target's exit feature of token p, at position p. Features of committed tokens come
    from the target's run; features of the bonus token and of drafts from its first layers, over its KV cache."""

    def __init__(self, head: HeadPlan, decoder: Decoder, adapter: Adapter) -> None:
        super().__init__()
        self.taps, self.size, self.decoder, self.adapter = head.taps, head.vocabulary_size, decoder, adapter
        self.head = TargetEmbeddings(lambda: decoder.model).head

    def states(self) -> list[State]:
        return layer_states(self.adapter.shape, self.decoder.shape)

    def target_caches(self) -> list[State]:
        return borrowed_states(self.decoder)

    def confidence(self, reading: "KangarooReading", logits: Tensor) -> Tensor:  # type: ignore[override]  # its own
        """Return the previous draft's confidence: the published code verifies the low-confidence draft and stops after
        it."""
        before, reading.confidence = reading.confidence, super().confidence(reading, logits)
        return before

    def begin(self, accepted: Accepted, states: list[Tensor]) -> "KangarooReading":
        return KangarooReading(self, accepted, states)


class KangarooReading(CachedDraftRound):
    """A round of Kangaroo. The constructor processes the features of committed tokens, and the bonus token."""

    def __init__(self, reader: KangarooReader, accepted: Accepted, states: list[Tensor]) -> None:
        n_path, length, catch_up = accepted.n_path, accepted.length, accepted.catch_up
        assert catch_up is not None, "a drafter with caches catches up"
        assert accepted.features is not None, "a drafter with taps is given features"
        own = len(reader.states())
        self.reader = reader
        self.first = TargetLayers(reader.decoder, accepted, states[own:], Taps(reader.decoder.model, reader.taps))
        self.current = CachedPass(states[:own], length, list(reader.adapter.shape.windows))
        self.row_positions = reader.decoder.clamp(length[:, None] + catch_up)
        causal = (catch_up[None, :] <= catch_up[:, None]).expand(n_path.shape[0], -1, -1)
        self.current.set_positions(self.row_positions, self.row_positions, causal)
        features = accepted.features.index_select(1, catch_up.clamp(max=accepted.features.shape[1] - 1))
        reader.adapter.add_rows(features, self.current, self.row_positions)
        self.caught_up = self.current.rows()
        self.committed = (catch_up < n_path[:, None])[:, None, :]  # [B, 1, C]: without the padding

        self.bonus = accepted.path.gather(1, n_path[:, None])
        self.seen = torch.ones_like(self.bonus, dtype=torch.bool)[:, None]  # [B, 1, 1]: the bonus token
        self.confidence = torch.ones_like(self.bonus, dtype=torch.float32)
        self.logits = self._read(self.bonus, 0, self.seen)

    def forward_drafts(self, tokens: Tensor, depth: int, ancestors: Tensor, parents: Tensor) -> Tensor:
        """See `DraftRound.forward_drafts`. `parents` is not needed: a token's parent is among its ancestors."""
        return self._read(tokens, depth, torch.cat([self.seen.expand(-1, tokens.shape[1], -1), ancestors], 2))

    def _read(self, tokens: Tensor, depth: int, visible: Tensor) -> Tensor:
        """Apply `TargetLayers.run`, then the adapter and the output head."""
        x = self.first.run(tokens, depth, visible)
        positions = self.first.positions
        self.row_positions = torch.cat([self.row_positions, positions], 1)
        committed = self.committed.expand(-1, tokens.shape[1], -1)
        self.current.set_positions(positions, self.row_positions, torch.cat([committed, visible], 2))
        hidden = self.reader.adapter(x, self.current, positions)
        return self.reader.head(hidden)
