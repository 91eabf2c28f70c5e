"""Drafting from features: a row holds the target's features of a token, and the next token (EAGLE, Li et al. 2024).

Row p is (feature of token p, token p + 1), at position p: a round that commits n tokens completes n rows, the bonus
token the last of them. A draft's row holds the drafter's own output instead of a feature, and the draft made of it;
these rows are not committed, because the next round has the true features.
"""

from abc import abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from speccompile.compiler.step.attention import CachedPass
from speccompile.compiler.step.decoder import CacheShape
from speccompile.compiler.step.draft import Accepted, State
from speccompile.compiler.step.draft.layers import Rotary, Turn, layer_states
from speccompile.compiler.step.draft.network import CachedDraftRound, DraftNetwork
from speccompile.compiler.step.draft.pictures import PicturedPath
from speccompile.plan.layers import LayerShape


class Output(NamedTuple):
    """Output of some rows. hidden float32 [B, T, h]: input of the head; feedback [B, T, h]: replaces the feature in the
    rows that follow."""

    hidden: Tensor
    feedback: Tensor


class PairedReader(DraftNetwork):
    """A network over such rows. Subclasses define how features become rows, the layers, and the head."""

    pairs_next_token = True
    embed_tokens: nn.Module

    def __init__(self, layers: LayerShape, shape: CacheShape) -> None:
        super().__init__()
        self.shape_of_layers, self.shape = layers, shape
        self.rotary = Rotary(layers, shape.max_length)

    def states(self) -> list[State]:
        return layer_states(self.shape_of_layers, self.shape)

    @abstractmethod
    def fuse(self, features: Tensor) -> Tensor:
        """Fuse features float32 [B, T, F] -> [B, T, h], once for every true row."""

    def embed(self, tokens: Tensor) -> Tensor:
        """Return the embeddings float32 [B, T, h] of tokens int64 [B, T]."""
        found: Tensor = self.embed_tokens(tokens)
        return found

    @abstractmethod
    def run(self, x: Tensor, embedded: Tensor, current: CachedPass, turn: Turn) -> Output:
        """Run the layers over rows x [B, T, h] and the embeddings [B, T, h] of the tokens after them. The pass has its
        positions set."""

    @abstractmethod
    def logits(self, hidden: Tensor) -> Tensor:
        """Return logits of hidden rows: [B, T, h] -> float32 [B, T, V] over the reader's vocabulary."""

    def begin(self, accepted: Accepted, states: list[Tensor]) -> "PairedReading":
        return PairedReading(self, accepted, states)

    def clamp(self, positions: Tensor) -> Tensor:
        """Keep padding inside the available positions."""
        return positions.clamp(max=self.shape.max_length - 1)


class PairedReading(CachedDraftRound):
    """One round. Its constructor reads a row for every committed token."""

    def __init__(self, reader: PairedReader, accepted: Accepted, states: list[Tensor]) -> None:
        path, n_path, length, catch_up = accepted.path, accepted.n_path, accepted.length, accepted.catch_up
        assert catch_up is not None, "a drafter with caches catches up"
        assert accepted.features is not None, "a drafter with taps is given features"
        self.reader, self.end = reader, length + n_path
        self.bonus = path.gather(1, n_path[:, None])
        tokens = path.index_select(1, (catch_up + 1).clamp(max=path.shape[1] - 1))  # [B, C]
        features = accepted.features.index_select(1, catch_up.clamp(max=accepted.features.shape[1] - 1))

        self.current = CachedPass(states, length, list(reader.shape_of_layers.windows))
        self.row_positions = reader.clamp(length[:, None] + catch_up)
        self.seen = catch_up < n_path[:, None]  # [B, C]: without the padding
        self.last = (n_path - 1).clamp(min=0)[:, None]  # [B, 1]: the row of the bonus token
        causal = (catch_up[None, :] <= catch_up[:, None]).expand(path.shape[0], -1, -1)
        self.pictures = PicturedPath(reader.media, accepted)
        self._read_path(reader.fuse(features), self.pictures.merged(reader.embed, tokens), causal)

    def _read_path(self, x: Tensor, embedded: Tensor, causal: Tensor) -> None:
        """Read the true rows x [B, C, h], with the embeddings [B, C, h] of the tokens after them; causal bool [B, C,
        C]."""
        self.current.set_positions(self.row_positions, self.row_positions, causal)
        turn = self.reader.rotary(self.row_positions, self.pictures.offsets())
        output = self.reader.run(x, embedded, self.current, turn)
        last = self.last[:, :, None].expand(-1, -1, output.hidden.shape[2])
        self.logits = self.reader.logits(output.hidden.gather(1, last))
        self.feedback = output.feedback.gather(1, last)  # [B, 1, h]
        self.caught_up = self.current.rows()

    def forward_drafts(self, tokens: Tensor, depth: int, ancestors: Tensor, parents: Tensor) -> Tensor:
        """See `DraftRound.forward_drafts`. A draft's row holds its parent's output, one position after its parent's
        row."""
        x = self.feedback.gather(1, parents[:, :, None].expand(-1, -1, self.feedback.shape[2]))
        positions, seen = self.reader.clamp((self.end + depth - 1)[:, None]), self.seen[:, None, :]
        if tokens.shape[1] > 1:
            positions, seen = positions.expand(tokens.shape), seen.expand(-1, tokens.shape[1], -1)
        self.row_positions = torch.cat([self.row_positions, positions], 1)
        self.current.set_positions(positions, self.row_positions, torch.cat([seen, ancestors], 2))
        turn = self.reader.rotary(positions, self.pictures.offsets_behind(tokens.shape[1]))
        output = self.reader.run(x, self.reader.embed(tokens), self.current, turn)
        self.feedback = output.feedback
        return self.reader.logits(output.hidden)
