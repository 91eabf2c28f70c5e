"""A round of MTP layers: rows of committed tokens, which are cached, then rows of drafts, which are not committed."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise

import torch
from torch import Tensor, nn

from speccompile.compiler.step import ops
from speccompile.compiler.step.attention import CachedPass
from speccompile.compiler.step.decoder import Decoder
from speccompile.compiler.step.draft import Accepted
from speccompile.compiler.step.draft.network import DraftRound
from speccompile.compiler.step.draft.pictures import PicturedPath
from speccompile.compiler.step.media_rows import MediaRows
from speccompile.compiler.step.taps import Taps
from speccompile.drafters.mtp.layer import MtpLayer
from speccompile.drafters.target import NORM


class HookedLayer(nn.Module):
    """An MTP layer with the attention hook."""

    def __init__(self, layer: MtpLayer, decoder: Decoder, *, feeds_normed: bool) -> None:
        """feeds_normed: the fed-back output is that of the norm before the head, if the layer has one."""
        super().__init__()
        self.layer, self.decoder = layer, decoder
        self.tap = NORM if feeds_normed and layer.has_norm else f"layers.{len(decoder.layers) - 1}.output"

    def run(
        self, current: CachedPass, x: Tensor, embedded: Tensor, logit_index: Tensor | None = None,
        turned: AbstractContextManager[None] | None = None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Run rows of x [B, T, H] and the next tokens' embeddings [B, T, H]. turned: context that gives the rows
        positions on three axes. Return logits as `Decoder.run`, and the fed-back outputs [B, T, H]."""
        taps = Taps(self.decoder.model, (self.tap,))
        with turned or nullcontext():
            logits = self.decoder.run(current, self.layer.join(x, embedded), logit_index, taps)
        return logits, taps.features()


class MtpLayerRound:
    """A round of one layer, whose row q has position q - lag; it has no rows before q = lag."""

    def __init__(
        self, layer: HookedLayer, lag: int, accepted: Accepted, caches: list[Tensor], pictures: PicturedPath
    ) -> None:
        n_path, length, catch_up = accepted.n_path, accepted.length, accepted.catch_up
        assert catch_up is not None, "a drafter with caches catches up"
        self.layer, self.lag, self.pictures = layer, lag, pictures
        self.current = layer.decoder.begin(caches, (length - lag).clamp(min=0) if lag else length)
        self.row_positions = self._positions(length[:, None] + catch_up)
        self.causal = (catch_up[None, :] <= catch_up[:, None]).expand(n_path.shape[0], -1, -1)  # [B, C, C]
        self.seen = catch_up < n_path[:, None]  # [B, C]: without the padding
        self.rows: Tensor | None = None  # [B, C]: rows of the catch-up to commit, in order
        if lag:
            first = (lag - length).clamp(min=0)[:, None]  # [B, 1]: the first row that exists
            exists, own = catch_up >= first, torch.eye(catch_up.shape[0], dtype=torch.bool)
            self.seen = self.seen & exists
            self.causal = self.causal & (exists[:, None, :] | own)  # a missing row sees itself alone
            self.rows = (catch_up + first).clamp(max=catch_up.shape[0] - 1)
        self.drafts = accepted.path[:, None, :0].bool()  # [B, 1, R]: which draft rows exist

    def _positions(self, places: Tensor) -> Tensor:
        return self.layer.decoder.clamp((places - self.lag).clamp(min=0) if self.lag else places)

    def read_path(self, x: Tensor, tokens: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
        """Process rows of x [B, C, H] and the next tokens int64 [B, C]. Return logits [B, 1, V] at the row `last` int64
        [B, 1], and the fed-back outputs of all rows."""
        self.current.set_positions(self.row_positions, self.row_positions, self.causal)
        embedded = self.pictures.merged(self.layer.layer.embed, tokens)
        turned = self.pictures.turning(self.layer.decoder.model, self.pictures.offsets())
        found = self.layer.run(self.current, x, embedded, last, turned)
        self.caught_up = self.current.rows()
        return found

    def read(self, x: Tensor, tokens: Tensor, place: Tensor, ancestors: Tensor) -> tuple[Tensor, Tensor]:
        """Process rows of drafts [B, T] at q = `place` int64 [B, 1]. ancestors bool [B, T, R + T]: attention mask over
        the layer's R earlier draft rows and these."""
        positions, before, width = self._positions(place), self.drafts.shape[2], tokens.shape[1]
        seen = self.seen[:, None, :]
        if width > 1:
            positions, seen = positions.expand(tokens.shape), seen.expand(-1, width, -1)
        self.row_positions = torch.cat([self.row_positions, positions], 1)
        if self.lag:
            ancestors = torch.cat([ancestors[:, :, :before] & self.drafts, ancestors[:, :, before:]], 2)
        self.current.set_positions(positions, self.row_positions, torch.cat([seen, ancestors], 2))
        exists = (place >= self.lag)[:, None, :].expand(-1, -1, width)
        self.drafts = torch.cat([self.drafts, exists], 2)
        turned = self.pictures.turning(self.layer.decoder.model, self.pictures.offsets_behind(width))
        return self.layer.run(self.current, x, self.layer.layer.embed(tokens), turned=turned)

    def commit(self) -> list[Tensor]:
        """Return the caches with the rows of committed tokens. The padding after them is never read."""
        rows = self.caught_up
        if self.rows is not None:
            index = self.rows[:, None, :, None]
            rows = [row.gather(2, index.expand(-1, row.shape[1], -1, row.shape[3])) for row in rows]
        return self.current.commit(rows)


class MtpReading(DraftRound):
    """A round of MTP layers. In the constructor, all layers process a row for every committed token."""

    def __init__(
        self, layers: Sequence[HookedLayer], accepted: Accepted, states: list[Tensor], media: MediaRows | None
    ) -> None:
        """states: caches of every layer, then the outputs [B, 1, S, H] per row of all layers except the last. media:
        see `DraftNetwork`."""
        path, n_path, catch_up = accepted.path, accepted.n_path, accepted.catch_up
        assert catch_up is not None, "a drafter with caches catches up"
        assert accepted.features is not None, "a drafter with taps is given features"
        self.length, self.end, self.catch_up = accepted.length, accepted.length + n_path, catch_up
        self.bonus = path.gather(1, n_path[:, None])
        self.rounds, first, pictures = list[MtpLayerRound](), 0, PicturedPath(media, accepted)
        for lag, layer in enumerate(layers):
            own = states[first : first + len(layer.decoder.cache_shapes())]
            self.rounds.append(MtpLayerRound(layer, lag, accepted, own, pictures))
            first += len(own)
        self.kept = states[first:]

        tokens = path.index_select(1, (catch_up + 1).clamp(max=path.shape[1] - 1))  # [B, C]
        features = accepted.features.index_select(1, catch_up.clamp(max=accepted.features.shape[1] - 1))
        self._read_path(features, tokens, (n_path - 1).clamp(min=0)[:, None])
        self.n_drafts = 0
        self.read_by = [list[slice]() for _ in layers]  # the drafts of which each layer has rows

    def _read_path(self, x: Tensor, tokens: Tensor, last: Tensor) -> None:
        """Process committed rows. last int64 [B, 1]: row of the bonus token, whose outputs the first draft reads."""
        self.outputs, self.true_outputs = list[Tensor](), list[Tensor]()  # of every layer, [B, T, H]
        for number, each in enumerate(self.rounds):
            logits, output = each.read_path(x, tokens, last)
            if number == 0:
                self.logits = logits
            self.outputs.append(output.gather(1, last[:, :, None].expand(-1, -1, output.shape[2])))
            if number < len(self.kept):
                x = torch.cat([self._before(self.kept[number]), output], 1).index_select(1, self.catch_up)
                self.true_outputs.append(output)

    def _before(self, outputs: Tensor) -> Tensor:
        """Return the last row [B, 1, H] of the outputs before this round; an arbitrary row if there is none."""
        index = (self.length - 1).clamp(min=0)[:, None, None, None]
        return outputs.gather(2, index.expand(-1, 1, 1, outputs.shape[3]))[:, 0]

    def forward_drafts(self, tokens: Tensor, depth: int, ancestors: Tensor, parents: Tensor) -> Tensor:
        """See `DraftRound.forward_drafts`. Layer `depth` mod n predicts the next drafts. In the first turn, the later
        layers process the drafts as well, because their own drafts will attend to them."""
        turn, number = divmod(depth, len(self.rounds))
        own = slice(self.n_drafts, self.n_drafts + tokens.shape[1])
        self.n_drafts = own.stop
        outputs, logits = list(self.outputs), list[Tensor]()
        for each in range(number, len(self.rounds) if turn == 0 else number + 1):
            x = self.outputs[each - 1]
            x = x.gather(1, parents[:, :, None].expand(-1, -1, x.shape[2]))
            self.read_by[each].append(own)
            columns = [ancestors[:, :, part] for part in _joined(self.read_by[each])]
            visible = torch.cat(columns, 2) if len(columns) > 1 else columns[0]
            found, outputs[each] = self.rounds[each].read(x, tokens, (self.end + depth - 1)[:, None], visible)
            logits.append(found)
        self.outputs = outputs
        return logits[0]

    def commit(self) -> list[Tensor]:
        """Return caches and outputs with the rows of committed tokens."""
        caches = [cache for each in self.rounds for cache in each.commit()]
        pairs = zip(self.kept, self.true_outputs, strict=True)
        return caches + [ops.commit(kept, rows[:, None], self.length, 2) for kept, rows in pairs]


def _joined(parts: list[slice]) -> list[slice]:
    """Merge adjacent slices."""
    found = parts[:1]
    for before, part in pairwise(parts):
        if before.stop == part.start:
            found[-1] = slice(found[-1].start, part.stop)
        else:
            found.append(part)
    return found
