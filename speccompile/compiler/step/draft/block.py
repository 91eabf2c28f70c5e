"""Drafting a block in one pass (DFlash, Chen et al. 2026): the bonus token and masks, over the target's features.

Context row p depends on the features of token p alone, not on later tokens: a round that commits n tokens adds n rows
to the caches. The block's own rows, at the positions after them, see all context and each other, and are never
committed. Drafts are read off its slots: slot j predicts the token at its own position, or, if the anchor is sampled
too, the next one.
"""

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from speccompile.compiler.step.attention import CachedPass
from speccompile.compiler.step.decoder import CacheShape
from speccompile.compiler.step.draft import Accepted, State
from speccompile.compiler.step.draft.layers import Layer, Rotary, layer_states, make_norm
from speccompile.compiler.step.draft.network import CachedDraftRound, DraftNetwork
from speccompile.plan.layers import LayerShape


@dataclass(frozen=True)
class Block:
    """Layout of a block. size: rows of a block, as trained: fewer drafts are read off a block of the same size, because
    a shorter block is another input. first: the slot of the first draft; drafts: number of slots that are read.

    causal_full, causal_sliding: in layers without and with an attention window, a slot sees no later one. from_anchor:
    the window is counted from the bonus token, for all slots.
    """

    size: int
    first: int
    drafts: int
    causal_full: bool = False
    causal_sliding: bool = False
    from_anchor: bool = False

    def expand_to_slots(self, blocks: Tensor) -> Tensor:
        """Repeat a value per block, [B, A, ..], for each slot of the A blocks: [B, A * size, ..]."""
        if blocks.shape[1] == 1:
            return blocks.expand(-1, self.size, *[-1] * (blocks.dim() - 2))
        return blocks.repeat_interleave(self.size, 1)

    def block_mask(self, blocks: int, *, is_causal: bool, device: torch.device) -> Tensor:
        """Return bool [A * size, A * size]: the rows that each row sees among `blocks` independent blocks."""
        places = torch.arange(self.size, device=device)
        visible = places[None, :] <= places[:, None] + (0 if is_causal else self.size)
        if blocks == 1:
            return visible
        number = torch.arange(blocks * self.size, device=device) // self.size
        return visible.repeat(blocks, blocks) & (number[:, None] == number)


class BlockReader(DraftNetwork):
    """The layers of a block drafter. Subclasses define the embedding of a block and the logits of its slots; subclasses
    of `Slots` define how a draft changes the next slot."""

    def __init__(
        self, layers: LayerShape, shape: CacheShape, block: Block, features: int, stack: Iterable[Layer]
    ) -> None:
        """features: F, the width of all taps together. stack: the layers' modules."""
        super().__init__()
        self.shape_of_layers, self.shape, self.block = layers, shape, block
        # A block extends beyond the longest sequence: its first slots see the last ones, whose positions must be right.
        self.rotary = Rotary(layers, shape.max_length + block.size)
        self.fc = nn.Linear(features, layers.hidden_size, bias=False)
        self.hidden_norm, self.norm = make_norm(layers), make_norm(layers)
        self.layers = nn.ModuleList(stack)

    def states(self) -> list[State]:
        return layer_states(self.shape_of_layers, self.shape)

    @abstractmethod
    def embed(self, bonus: Tensor) -> Tensor:
        """Embed the bonus token int64 [B, 1] -> rows of the block, float32 [B, size, h]."""

    @abstractmethod
    def logits(self, hidden: Tensor) -> Tensor:
        """Return the slots' own logits over the reader's vocabulary: [B, N, h] -> float32 [B, N, V]."""

    def slots(self, hidden: Tensor) -> "Slots":
        """Return the slots that are read, from their normed hidden states [B, N, h]."""
        return Slots(self, hidden)

    def begin(self, accepted: Accepted, states: list[Tensor]) -> "BlockReading":
        return BlockReading(self, accepted, states)

    def add_context(self, features: Tensor, positions: Tensor, current: CachedPass) -> None:
        """Put the rows of committed tokens into the pass: features float32 [B, C, F], positions int64 [B, C]."""
        context, turn = self.hidden_norm(self.fc(features)), self.rotary(positions)
        for layer in self.layers:
            layer.self_attn.add_rows(context, current, turn)

    def run(self, x: Tensor, positions: Tensor, seen: Tensor, current: CachedPass, context_positions: Tensor) -> Tensor:
        """Run the rows [B, A * size, h] of A independent blocks (a round has one), at positions int64 [B, A * size],
        over context rows in the pass. seen bool [B, A, C]: the context rows that each block sees."""
        block, turn = self.block, self.rotary(positions)
        row_positions = torch.cat([context_positions, positions], 1)
        context = block.expand_to_slots(seen)
        counted = block.expand_to_slots(positions[:, :: block.size]) if block.from_anchor else positions
        looked: bool | None = None
        for layer, window in zip(self.layers, self.shape_of_layers.windows, strict=True):
            is_causal = block.causal_sliding if window else block.causal_full
            if looked != is_causal:
                own = block.block_mask(seen.shape[1], is_causal=is_causal, device=x.device)
                visible = torch.cat([context, own.expand(x.shape[0], -1, -1)], 2)
                current.set_positions(counted, row_positions, visible)
                looked = is_causal
            x = layer(x, current, turn)
        return x


class Slots:
    """Slots of blocks that are read: hidden float32 [B, N, h], and their own logits, said [B, N, V]."""

    def __init__(self, reader: BlockReader, hidden: Tensor) -> None:
        self.hidden, self.said = hidden, reader.logits(hidden)

    def after(self, slot: int, before: Tensor, parents: Tensor | None = None) -> Tensor:
        """Return the logits of slot `slot`, float32 [B, T, V] given the tokens int64 [B, T] before it, or [B, 1, V] if
        they are the same after all of them. Called in slot order. parents int64 [B, T]: which tokens of the previous
        slot these follow, None for a chain."""
        return self.said[:, slot : slot + 1]


def of_parents(memory: Tensor | None, parents: Tensor | None) -> Tensor | None:
    """Return the rows [B, T, r] of what drafts remember, [B, P, r], that T drafts go on from. parents: see
    `Slots.after`."""
    if memory is None or parents is None:
        return memory
    return memory.gather(1, parents[:, :, None].expand(-1, -1, memory.shape[2]))


class BlockReading(CachedDraftRound):
    """One round. Its constructor runs the block after all committed tokens, and reads its first slot."""

    def __init__(self, reader: BlockReader, accepted: Accepted, states: list[Tensor]) -> None:
        path, n_path, length, catch_up = accepted.path, accepted.n_path, accepted.length, accepted.catch_up
        assert catch_up is not None, "a drafter with caches catches up"
        assert accepted.features is not None, "a drafter with taps is given features"
        self.reader, self.bonus = reader, path.gather(1, n_path[:, None])
        features = accepted.features.index_select(1, catch_up.clamp(max=accepted.features.shape[1] - 1))

        self.current = CachedPass(states, length, list(reader.shape_of_layers.windows))
        positions = length[:, None] + catch_up
        reader.add_context(features, positions, self.current)
        self.caught_up = self.current.rows()

        block, seen = reader.block, (catch_up < n_path[:, None])[:, None]  # [B, 1, C]: no padding
        own = (length + n_path)[:, None] + torch.arange(block.size, device=path.device)
        x = reader.run(reader.embed(self.bonus), own, seen, self.current, positions)
        self.slots = reader.slots(reader.norm(x[:, block.first : block.first + block.drafts]))
        self.logits = self.slots.after(0, self.bonus)

    def forward_drafts(self, tokens: Tensor, depth: int, ancestors: Tensor, parents: Tensor) -> Tensor:
        """See `DraftRound.forward_drafts`. The block has been run, only the drafts before the slot are new."""
        return self.slots.after(depth, tokens, parents if tokens.shape[1] > 1 else None)
