"""A language model that drafts: it catches up on the accepted path, then reads drafts."""

import torch
from torch import Tensor

from speccompile.step.attention import Pass
from speccompile.step.decoder import Decoder
from speccompile.step.draft import Accepted, State
from speccompile.step.draft.reading import Reader, Reading
from speccompile.step.draft.vocabulary import FirstTokens


def cache_states(decoder: Decoder, prefix: str) -> list[State]:
    """The decoder's caches as states: `<prefix>.key.0`, `<prefix>.value.0`, `<prefix>.key.1`, .."""
    shapes = decoder.cache_shapes()
    return [State(f"{prefix}.{('key', 'value')[i % 2]}.{i // 2}", torch.float32, s) for i, s in enumerate(shapes)]


class DecoderReader(Reader):
    """A decoder with caches of its own, which lag the target's.

    After a round with a chain its caches hold every token but the last draft, where they keep drafts: rows that turn
    out wrong lie behind the length and are overwritten. Of a tree nobody knows yet which branch will be accepted.

    Its vocabulary and the target's may end in more or less padding. It drafts among the tokens that both have: what it
    says of others is cut off before anything is chosen or drawn, so its probabilities add up to one over these alone.
    A token that it lacks is read as its last one. Text holds none of them; where a target chooses one all the same,
    what is drafted behind it is a worse guess, of which the target accepts as much as is right.
    """

    keeps_drafts = True

    def __init__(self, decoder: Decoder, prefix: str = "drafter", target_size: int | None = None) -> None:
        """target_size: tokens of the target's vocabulary, by default as many as the decoder's own."""
        super().__init__()
        self.decoder, self.prefix, self.rows = decoder, prefix, decoder.model.config.vocab_size
        self.size = min(self.rows, target_size or self.rows)
        self.vocabulary = FirstTokens(self.rows) if target_size and target_size > self.rows else None

    def states(self) -> list[State]:
        return cache_states(self.decoder, self.prefix)

    def begin(self, accepted: Accepted, states: list[Tensor]) -> "DecoderReading":
        return DecoderReading(self, accepted, states)

    def run(self, current: Pass, tokens: Tensor, logit_index: Tensor | None = None) -> Tensor:
        """As `Decoder.run`, of any token of the target; logits over the common tokens."""
        known = tokens if self.vocabulary is None else tokens.clamp(max=self.rows - 1)
        logits = self.decoder.run(current, known, logit_index)
        return logits if self.size == self.rows else logits[:, :, : self.size]


class DecoderReading(Reading):
    """One round of a decoder that drafts. Made, it has read the path's last tokens, of which the last is the bonus."""

    def __init__(self, reader: DecoderReader, accepted: Accepted, states: list[Tensor]) -> None:
        path, n_path, length, catch_up = accepted.path, accepted.n_path, accepted.length, accepted.catch_up
        assert catch_up is not None, "a drafter with caches catches up"
        self.reader, self.decoder = reader, reader.decoder
        self.width, self.end = catch_up.shape[0], length + n_path
        start = (n_path - (self.width - 1)).clamp(min=0)  # [B]: where in the path the catch-up begins
        self.last = n_path - start  # [B]: where in the catch-up the bonus token stands
        tokens = path.gather(1, (start[:, None] + catch_up).clamp(max=path.shape[1] - 1))  # [B, C]
        self.bonus = path.gather(1, n_path[:, None])

        self.current = self.decoder.begin(states, length + start)
        self.row_positions = self.decoder.clamp((length + start)[:, None] + catch_up)
        self.seen = catch_up <= self.last[:, None]  # [B, C]: without the padding
        self._read_path(tokens, (catch_up[None, :] <= catch_up[:, None]).expand(path.shape[0], -1, -1))

    def _read_path(self, tokens: Tensor, causal: Tensor) -> None:
        """Read the path's last tokens int64 [B, C]; causal bool [B, C, C]."""
        self.current.look(self.row_positions, self.row_positions, causal)
        self.logits = self.reader.run(self.current, tokens, self.last[:, None])
        self.caught_up = self.current.rows()

    def read(self, tokens: Tensor, depth: int, ancestors: Tensor, parents: Tensor) -> Tensor:
        """As `Reading.read`; a token's parent is among its ancestors, which is all that counts."""
        positions = self.decoder.clamp((self.end + depth)[:, None])
        seen = self.seen[:, None, :]
        if tokens.shape[1] > 1:
            positions, seen = positions.expand(tokens.shape), seen.expand(-1, tokens.shape[1], -1)
        self.row_positions = torch.cat([self.row_positions, positions], 1)
        self.current.look(positions, self.row_positions, torch.cat([seen, ancestors], 2))
        return self.reader.run(self.current, tokens)

    def commit(self) -> list[Tensor]:
        """The caches with the rows of the catch-up. Its padding lies behind the bonus token, where nobody reads."""
        return self.current.commit(self.caught_up)

    def commit_drafts(self) -> list[Tensor]:
        """The caches with all rows in the order in which they were read, without the padding (last + 1 .. C - 1)."""
        rows = self.current.rows()
        n_rows = rows[0].shape[2]
        places = torch.arange(n_rows, device=self.last.device)
        padding = (self.width - 1 - self.last)[:, None]
        order = torch.where(places <= self.last[:, None], places, places + padding).clamp(max=n_rows - 1)
        return self.current.commit(
            [row.gather(2, order[:, None, :, None].expand(-1, row.shape[1], -1, row.shape[3])) for row in rows]
        )
