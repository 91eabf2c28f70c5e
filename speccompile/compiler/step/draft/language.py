"""A language model that drafts: it catches up on the accepted path, then reads drafts."""

import torch
from torch import Tensor

from speccompile.bundle.caches import QUANTIZED_KINDS
from speccompile.compiler.step.attention import CachedPass
from speccompile.compiler.step.decoder import Decoder, no_tree
from speccompile.compiler.step.draft import Accepted, State
from speccompile.compiler.step.draft.network import DraftNetwork, DraftRound
from speccompile.compiler.step.draft.own_text import OwnText, OwnTokens, TargetText
from speccompile.compiler.step.draft.vocabulary import FirstTokens
from speccompile.contract import FLOAT_CACHE


def cache_states(decoder: Decoder, prefix: str, first: int = 0) -> list[State]:
    """Return the decoder's caches as states: `<prefix>.key.0`, `<prefix>.value.0`, .. of its first layer, then of the
    second, without layers that it skips or that attend to another layer's keys and values. first: number of the first
    layer."""
    numbered = ((name.rpartition("."), shape) for name, shape in decoder.cache_shapes().items())
    stored = dict.fromkeys(QUANTIZED_KINDS, decoder.shape.dtype)
    return [
        State(f"{prefix}.{kind}.{first + int(layer)}", torch.float32, shape, cache=stored.get(kind, FLOAT_CACHE))
        for (kind, _, layer), shape in numbered
    ]


class DecoderReader(DraftNetwork):
    """A decoder with its own caches, which lag the target's.

    After a round with a chain its caches hold every token but the last draft, if it commits drafts: rows that turn out
    wrong lie after the length and are overwritten. In a tree it is not known yet which branch will be accepted.

    Its vocabulary and the target's may be padded differently. It drafts among their common tokens: other logits are cut
    off before anything is chosen or drawn, so its probabilities sum to one over the common tokens. A token that it
    lacks is read as its last one. Text holds no such token; if a target chooses one all the same, the drafts after it
    are worse, and the target accepts fewer.

    With another tokenizer than the target's it reads the text in its own tokens, and drafts among the common ones.
    """

    def __init__(
        self,
        decoder: Decoder,
        prefix: str = "drafter",
        target_size: int | None = None,
        own: OwnTokens | None = None,
    ) -> None:
        """target_size: number of tokens of the target's vocabulary, by default the decoder's own. own: its tokens, if
        its tokenizer is another one; its caches then have E rows for each token of the target."""
        super().__init__()
        self.decoder, self.prefix, self.rows = decoder, prefix, decoder.model.config.vocab_size
        self.is_recurrent, self.reads_source = decoder.is_recurrent, decoder.has_source
        self.can_commit_drafts = not self.is_recurrent  # a state that has read a draft cannot go back
        self.size = min(self.rows, target_size or self.rows)
        self.vocabulary = FirstTokens(self.rows) if target_size and target_size > self.rows else None
        self.own = own
        if own is not None:
            self.size, self.vocabulary = own.size, own.vocabulary

    def states(self) -> list[State]:
        caches, shape = cache_states(self.decoder, self.prefix), self.decoder.shape
        if self.own is None:
            return caches
        return [*caches, self.own.state(shape.batch_size, shape.rows // self.own.expansion, self.prefix)]

    def begin(self, accepted: Accepted, states: list[Tensor]) -> "DecoderReading":
        return DecoderReading(self, accepted, states)

    def known(self, tokens: Tensor) -> Tensor:
        """Return one of the decoder's tokens, int64, for each of the target's: the last one, where it has several."""
        if self.own is not None:
            return self.own.last[tokens]
        return tokens if self.vocabulary is None else tokens.clamp(max=self.rows - 1)

    def read(self, accepted: Accepted, states: list[Tensor]) -> tuple[TargetText, list[Tensor]]:
        """Return the path's last tokens, as the decoder's, and its caches among the states."""
        if self.own is None:
            text = TargetText(accepted)
            text.tokens = self.known(text.tokens)
            return text, states
        return OwnText(accepted, self.own, states[-1]), states[:-1]

    def run(self, current: CachedPass, tokens: Tensor, logit_index: Tensor | None = None) -> Tensor:
        """See `Decoder.run`; logits over the common tokens."""
        logits = self.decoder.run(current, tokens, logit_index)
        if self.own is not None:
            return logits.index_select(2, self.own.drafter_ids)
        return logits if self.size == self.rows else logits[:, :, : self.size]


class DecoderReading(DraftRound):
    """One round of a drafting decoder. Its constructor reads the path's last tokens, of which the last is the bonus
    token."""

    def __init__(self, reader: DecoderReader, accepted: Accepted, states: list[Tensor]) -> None:
        self.reader, self.decoder = reader, reader.decoder
        self.text, caches = reader.read(accepted, states)
        text = self.text
        self.width, self.end = text.steps.shape[0], text.end
        self.last = text.last  # [B]: index of the bonus token in the catch-up
        self.bonus = accepted.path.gather(1, accepted.n_path[:, None])

        self.current = self.decoder.begin(caches, text.begin, accepted.source_length)
        self.row_positions = self.decoder.clamp(text.begin[:, None] + text.steps)
        self.seen = text.steps <= self.last[:, None]  # [B, C]: without the padding
        causal = (text.steps[None, :] <= text.steps[:, None]).expand(text.tokens.shape[0], -1, -1)
        self._read_path(text.tokens, causal)

    def _read_path(self, tokens: Tensor, causal: Tensor) -> None:
        """Read the path's last tokens, the decoder's int64 [B, C]; causal bool [B, C, C]."""
        self.current.set_positions(self.row_positions, self.row_positions, causal, self.last + 1)
        self.logits = self.reader.run(self.current, tokens, self.last[:, None])
        self.caught_up = self.current.rows()

    def forward_drafts(self, tokens: Tensor, depth: int, ancestors: Tensor, parents: Tensor) -> Tensor:
        """See `DraftRound.forward_drafts`; `parents` is unused, because a token's parent is among its ancestors.

        Raise UnsupportedModelError if several tokens follow one, for a model with recurrent states.
        """
        if self.reader.is_recurrent and (tokens.shape[1] > 1 or ancestors.shape[2] != depth):
            raise no_tree(self.decoder, "the drafter")
        positions = self.decoder.clamp((self.end + depth)[:, None])
        return self._read_at(tokens, positions.expand(tokens.shape) if tokens.shape[1] > 1 else positions, ancestors)

    def read_on(self, tokens: Tensor, depths: Tensor, ancestors: Tensor) -> Tensor:
        """Read drafts int64 [B, T] of depths int64 [B, T] after the bonus token, which may differ between batch slots;
        otherwise as `DraftRound.forward_drafts`."""
        return self._read_at(tokens, self.decoder.clamp(self.end[:, None] + depths), ancestors)

    def _read_at(self, tokens: Tensor, positions: Tensor, ancestors: Tensor) -> Tensor:
        seen = self.seen[:, None, :]
        if tokens.shape[1] > 1:
            seen = seen.expand(-1, tokens.shape[1], -1)
        self.row_positions = torch.cat([self.row_positions, positions], 1)
        self.current.set_positions(positions, self.row_positions, torch.cat([seen, ancestors], 2))
        return self.reader.run(self.current, self.reader.known(tokens))

    def commit(self) -> list[Tensor]:
        """Return the caches with the rows of the catch-up. Its padding lies after the bonus token and is never read;
        recurrent states stop before that token, with which the next path begins."""
        return [*self.current.commit(self.caught_up, self.last), *self.text.commit(0)]

    def commit_drafts(self) -> list[Tensor]:
        """Return the caches with all rows in the order in which they were read, without the padding (last + 1 .. C -
        1)."""
        places = torch.arange(self.current.rows()[0].shape[2], device=self.last.device)
        padding = (self.width - 1 - self.last)[:, None]
        order = torch.where(places <= self.last[:, None], places, places + padding)
        return self._commit_rows(order, places.shape[0] - self.width)

    def commit_kept(self, kept: Tensor) -> list[Tensor]:
        """Return the caches with the path's last tokens, followed by the drafts `kept`, bool [B, R] of the R that were
        read, in the order in which they were read."""
        ranks = torch.arange(kept.shape[1], device=kept.device)
        # Position of the kept draft of each rank: the number of rows with at most `rank` kept drafts up to them.
        found = (kept.long().cumsum(1)[:, None, :] <= ranks[:, None]).long().sum(2)
        places = torch.arange(self.width + kept.shape[1], device=kept.device)
        behind = places - self.last[:, None] - 1
        drafts = self.width + found.gather(1, behind.clamp(0, kept.shape[1] - 1))
        return self._commit_rows(torch.where(behind < 0, places, drafts), kept.shape[1])

    def _commit_rows(self, order: Tensor, drafts: int) -> list[Tensor]:
        """Return the caches with rows `order` int64 [B, n] of all that were read; indices beyond the last row lie after
        the length. drafts: number of drafts among them, at most."""
        rows = self.current.rows()
        order = order.clamp(max=rows[0].shape[2] - 1)
        caches = self.current.commit(
            [row.gather(2, order[:, None, :, None].expand(-1, row.shape[1], -1, row.shape[3])) for row in rows]
        )
        return [*caches, *self.text.commit(drafts)]
