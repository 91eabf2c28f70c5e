"""Some of the target's layers over the target's own caches: Draft & Verify (Zhang et al. 2024), SWIFT (Xia et al.
2024), and early exit with its first layers (LayerSkip, Elhoushi et al. 2024).

The caches already hold the round's commit when the drafter reads: it catches up on nothing and commits nothing. It
reads the bonus token, whose row the target has not computed yet, then its drafts; the target recomputes the rows of
both when it verifies them. After a skipped layer, the target's committed rows differ from those that the drafter itself
would have made. They draft better (on the demo, layers 0, 1 and 3: 3.2 tokens a round, 2.0 with its own rows).
"""

import torch
from torch import Tensor

from speccompile.compiler.step.decoder import Decoder
from speccompile.compiler.step.draft import Accepted, State
from speccompile.compiler.step.draft.language import cache_states
from speccompile.compiler.step.draft.network import DraftNetwork, DraftRound
from speccompile.compiler.step.draft.pictures import PicturedPath
from speccompile.compiler.step.media_rows import MediaRows
from speccompile.compiler.step.taps import Taps
from speccompile.contract import COMPONENTS


def borrowed_states(decoder: Decoder) -> list[State]:
    """Return the target's caches of the layers that attend in the decoder."""
    return cache_states(decoder, COMPONENTS[0])


class TargetLayers:
    """One round of the target without some of its layers: it reads the bonus token, then drafts.

    decoder: with the remaining layers; caches: the target's caches of these layers, after the round's commit. positions
    int64 [B, T]: of the tokens that were read last.
    """

    def __init__(
        self, decoder: Decoder, accepted: Accepted, caches: list[Tensor], taps: Taps | None = None,
        media: MediaRows | None = None,
    ) -> None:  # fmt: skip
        self.pictures = PicturedPath(media, accepted)
        self.decoder, self.taps, self.end = decoder, taps, accepted.length + accepted.n_path
        self.current = decoder.begin(caches, self.end, accepted.source_length)
        self.positions = self.row_positions = self.end[:, None][:, :0]

    def run(self, tokens: Tensor, depth: int, visible: Tensor) -> Tensor:
        """Read tokens int64 [B, T], `depth` tokens after the bonus token, depth by depth; return logits float32 [B, T,
        V], or with taps features [B, T, F].

        visible bool [B, T, R]: which of the R tokens read so far, the bonus token first and these last, each token
        sees.
        """
        self.positions = self.decoder.clamp((self.end + depth)[:, None]).expand(tokens.shape)
        self.row_positions = torch.cat([self.row_positions, self.positions], 1)
        self.current.set_positions(self.positions, self.row_positions, visible)
        with self.pictures.turning(self.decoder.model, self.pictures.offsets_behind(tokens.shape[1])):
            logits = self.decoder.run(self.current, tokens, taps=self.taps)
        return logits if self.taps is None else self.taps.features()


class LayersReader(DraftNetwork):
    """Some of the target's layers and its head."""

    has_cache = False

    def __init__(self, decoder: Decoder) -> None:
        """decoder: with these layers alone."""
        super().__init__()
        self.decoder, self.size = decoder, decoder.model.config.vocab_size
        self.reads_source = decoder.has_source

    def states(self) -> list[State]:
        return []

    def target_caches(self) -> list[State]:
        return borrowed_states(self.decoder)

    def begin(self, accepted: Accepted, states: list[Tensor]) -> "LayersReading":
        return LayersReading(self.decoder, accepted, states, self.media)


class LayersReading(DraftRound):
    """One round. Its constructor reads the bonus token."""

    def __init__(
        self, decoder: Decoder, accepted: Accepted, caches: list[Tensor], media: MediaRows | None = None
    ) -> None:
        self.layers = TargetLayers(decoder, accepted, caches, media=media)
        self.bonus = accepted.path.gather(1, accepted.n_path[:, None])
        self.seen = torch.ones_like(self.bonus, dtype=torch.bool)[:, None]  # [B, 1, 1]
        self.logits = self.layers.run(self.bonus, 0, self.seen)

    def forward_drafts(self, tokens: Tensor, depth: int, ancestors: Tensor, parents: Tensor) -> Tensor:
        """See `DraftRound.forward_drafts`; `parents` is unused, because a token's parent is among its ancestors."""
        seen = self.seen.expand(-1, tokens.shape[1], -1)
        return self.layers.run(tokens, depth, torch.cat([seen, ancestors], 2))

    def commit(self) -> list[Tensor]:
        """Return no states: nothing is committed."""
        return []
