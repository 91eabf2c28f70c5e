"""A smaller language model as drafter (Leviathan et al. 2023; Chen et al. 2023), greedy, unrolled K times."""

import torch
from torch import Tensor

from speccompile.step import ops
from speccompile.step.attention import Pass
from speccompile.step.decoder import Decoder
from speccompile.step.draft import Drafted, Drafter, State


class ModelDrafter(Drafter):
    """Keeps its own caches, which lag the target's: it catches up on the last C tokens of the path, then drafts.

    After a round its caches hold every token but the last draft. So the next round misses at most two: the last
    draft, if it was accepted, and the bonus token. Rows that turn out wrong lie behind the length and are overwritten.
    """

    catch_up = 2

    def __init__(self, decoder: Decoder, tokens: int) -> None:
        super().__init__()
        self.decoder, self.tokens = decoder, tokens

    def states(self) -> list[State]:
        return [
            State(f"drafter.{('key', 'value')[i % 2]}.{i // 2}", torch.float32, shape)
            for i, shape in enumerate(self.decoder.cache_shapes())
        ]

    def forward(self, path: Tensor, n_path: Tensor, length: Tensor, catch_up: Tensor, states: list[Tensor]) -> Drafted:
        width = catch_up.shape[0]  # C
        start = (n_path - (width - 1)).clamp(min=0)  # [B]: where in the path the catch-up begins
        last = n_path - start  # [B]: where in the catch-up the bonus token stands
        tokens = path.gather(1, (start[:, None] + catch_up).clamp(max=path.shape[1] - 1))  # [B, C]
        bonus = path.gather(1, n_path[:, None])

        current = self.decoder.begin(states, length + start)
        row_positions = self.decoder.clamp((length + start)[:, None] + catch_up)
        causal = (catch_up[None, :] <= catch_up[:, None]).expand(path.shape[0], -1, -1)
        current.look(row_positions, row_positions, causal)
        draft = self.decoder.run(current, tokens, last[:, None]).argmax(-1)  # [B, 1]

        drafts, seen = [draft], catch_up <= last[:, None]  # [B, C]
        for step in range(1, self.tokens):
            position = self.decoder.clamp((length + n_path + step)[:, None])
            row_positions = torch.cat([row_positions, position], 1)
            seen = torch.cat([seen, torch.ones_like(position, dtype=torch.bool)], 1)
            current.look(position, row_positions, seen[:, None, :])
            draft = self.decoder.run(current, draft).argmax(-1)
            drafts.append(draft)
        n_total = torch.where(n_path > 0, 1 + self.tokens, 1)  # no constant: engines bind every output's memory
        return Drafted(torch.cat([bonus, *drafts], 1), n_total, self._commit(current, last, width))

    def _commit(self, current: Pass, last: Tensor, width: int) -> list[Tensor]:
        """Commit the pass's rows without the padding of the catch-up (positions last + 1 .. C - 1)."""
        rows = current.rows()
        places = torch.arange(rows[0].shape[2], device=last.device)
        padding = (width - 1 - last)[:, None]
        order = torch.where(places <= last[:, None], places, places + padding).clamp(max=rows[0].shape[2] - 1)
        return [
            ops.commit(cache, row.gather(2, order[:, None, :, None].expand(-1, row.shape[1], -1, row.shape[3])),
                       current.length, 2)
            for cache, row in zip(current.caches, rows, strict=True)
        ]  # fmt: skip
