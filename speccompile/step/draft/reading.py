"""What a drafter's language model does in one round: it catches up on the accepted path, then reads drafts."""

import torch
from torch import Tensor

from speccompile.step import ops
from speccompile.step.decoder import Decoder
from speccompile.step.draft import Accepted, State


def cache_states(decoder: Decoder, prefix: str) -> list[State]:
    """The decoder's caches as states: `<prefix>.key.0`, `<prefix>.value.0`, `<prefix>.key.1`, .."""
    shapes = decoder.cache_shapes()
    return [State(f"{prefix}.{('key', 'value')[i % 2]}.{i // 2}", torch.float32, s) for i, s in enumerate(shapes)]


class Reading:
    """One round of a decoder that drafts. Made, it has read the path's last tokens, of which the last is the bonus.

    bonus int64 [B, 1]; logits float32 [B, 1, V] after it.
    """

    def __init__(self, decoder: Decoder, accepted: Accepted, states: list[Tensor]) -> None:
        path, n_path, length, catch_up = accepted.path, accepted.n_path, accepted.length, accepted.catch_up
        assert catch_up is not None, "a drafter with caches catches up"
        self.decoder, self.width, self.end = decoder, catch_up.shape[0], length + n_path
        start = (n_path - (self.width - 1)).clamp(min=0)  # [B]: where in the path the catch-up begins
        self.last = n_path - start  # [B]: where in the catch-up the bonus token stands
        tokens = path.gather(1, (start[:, None] + catch_up).clamp(max=path.shape[1] - 1))  # [B, C]
        self.bonus = path.gather(1, n_path[:, None])

        self.current = decoder.begin(states, length + start)
        self.row_positions = decoder.clamp((length + start)[:, None] + catch_up)
        causal = (catch_up[None, :] <= catch_up[:, None]).expand(path.shape[0], -1, -1)
        self.current.look(self.row_positions, self.row_positions, causal)
        self.logits = decoder.run(self.current, tokens, self.last[:, None])
        self.caught_up = self.current.rows()
        self.seen = catch_up <= self.last[:, None]  # [B, C]: without the padding

    def read(self, tokens: Tensor, depth: int, ancestors: Tensor) -> Tensor:
        """Read drafts int64 [B, T], `depth` tokens behind the bonus token; returns logits float32 [B, T, V].

        ancestors bool [B, T, R]: which of the R drafts that were read, these included, each of them sees.
        """
        positions = self.decoder.clamp((self.end + depth)[:, None])
        seen = self.seen[:, None, :]
        if tokens.shape[1] > 1:
            positions, seen = positions.expand(tokens.shape), seen.expand(-1, tokens.shape[1], -1)
        self.row_positions = torch.cat([self.row_positions, positions], 1)
        self.current.look(positions, self.row_positions, torch.cat([seen, ancestors], 2))
        return self.decoder.run(self.current, tokens)

    def commit(self) -> list[Tensor]:
        """The caches with the rows of the catch-up. Its padding lies behind the bonus token, where nobody reads."""
        return self._committed(self.caught_up)

    def commit_drafts(self) -> list[Tensor]:
        """The caches with all rows in the order in which they were read, without the padding (last + 1 .. C - 1)."""
        rows = self.current.rows()
        n_rows = rows[0].shape[2]
        places = torch.arange(n_rows, device=self.last.device)
        padding = (self.width - 1 - self.last)[:, None]
        order = torch.where(places <= self.last[:, None], places, places + padding).clamp(max=n_rows - 1)
        return self._committed(
            [row.gather(2, order[:, None, :, None].expand(-1, row.shape[1], -1, row.shape[3])) for row in rows]
        )

    def _committed(self, rows: list[Tensor]) -> list[Tensor]:
        pairs = zip(self.current.caches, rows, strict=True)
        return [ops.commit(cache, row, self.current.length, 2) for cache, row in pairs]
