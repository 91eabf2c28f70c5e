"""Lookahead decoding (Fu et al. 2024, 2402.02057): a window of draft tokens that gains one level per round.

Level l of column i is the target's prediction i + l tokens ahead, l rounds after column i began. A round verifies all
levels and G n-grams of the pool in one tree (`nodes`). The target's prediction after the last level completes every
column to an n-gram, which enters the pool under its first token. Then the lowest level is dropped, the rest move down.

The levels start as pieces of the text instead of random tokens, so that no rounds are spent on filling them. The pool
also takes n-grams of all processed text. Correct tokens of the window are accepted like any other draft.

Every batch slot has a separate window, which continues its text. All slots share the pool: n-grams of one text can be
drafts for another. Both states are persistent and may be stale: drafts are always valid tokens, and no output depends
on them.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from speccompile.compiler.step.draft import Accepted, Drafted, Drafter, State
from speccompile.contract import PERSISTENT_PREFIX
from speccompile.drafters.context import DrafterContext
from speccompile.drafters.lookahead.nodes import Layout, lay_out
from speccompile.drafters.lookahead.pool import NgramPool


def make(context: DrafterContext) -> Drafter:
    """Return the drafter, whose only state is the window and the pool."""
    window = context.drafter.lookahead
    assert window is not None, "the plan decides it"
    return Lookahead(lay_out(*window), context.vocabulary_size, context.shape.batch_size)


class Lookahead(Drafter):
    """Drafts a window of W columns and N - 1 levels, and G n-grams of the pool after the bonus token."""

    target_top_k = 1

    def __init__(self, layout: Layout, vocabulary: int, batch_size: int) -> None:
        super().__init__()
        self.shape, self.tokens, self.layout = layout.tree, layout.tree.drafts, layout
        self.levels, self.columns = len(layout.window), len(layout.window[0])
        self.pool = NgramPool(vocabulary, len(layout.guesses), self.levels + 1)
        self.batch_size = batch_size

    def states(self) -> list[State]:
        """Return the states: kept.window int64 [B, N - 1, W], of which level 0 of column 0, the root's, is never read;
        kept.pool int64 [lists + 1, G * N]."""
        window = (self.batch_size, self.levels, self.columns)
        pool = State(f"{PERSISTENT_PREFIX}pool", torch.int64, self.pool.shape, is_batched=False)
        return [State(f"{PERSISTENT_PREFIX}window", torch.int64, window), pool]

    def forward(self, accepted: Accepted, states: list[Tensor]) -> Drafted:
        verified, columns = self._columns(accepted, states[0])
        pool = self._learned(accepted, states[1], columns, verified)
        begins = ~verified & ((accepted.n_path > 1) | ((accepted.n_path > 0) & (accepted.length == 0)))
        window = torch.where(verified[:, None, None], columns[:, 1:], columns[:, :-1])
        window = torch.where(begins[:, None, None], self._runs(accepted), window)

        bonus = accepted.path.gather(1, accepted.n_path[:, None])
        guesses, found = self.pool.find(pool, bonus[:, 0])
        guesses = torch.where(found[:, :, None], guesses, bonus[:, :, None])  # fill missing n-grams with any token
        rows = torch.cat([window.clamp(0, self.pool.vocabulary - 1).flatten(1), guesses.flatten(1)], 1)
        nodes = [node for row in (*self.layout.window, *self.layout.guesses) for node in row]
        drafts = rows.index_select(1, torch.tensor([nodes.index(node) for node in range(1, self.tokens + 1)]))
        n_total = torch.where(accepted.n_path > 0, 1 + self.tokens, 1)
        return Drafted(torch.cat([bonus, drafts], 1), n_total, [window, pool])

    def _columns(self, accepted: Accepted, window: Tensor) -> tuple[Tensor, Tensor]:
        """Return whether the target verified the window, bool [B], and the n-grams of its columns, int64 [B, N, W]: the
        root and the window, and the target's predictions after the last level.

        Nothing else reads the window, because its buffer is written in place.
        """
        successors, tokens = accepted.successors, accepted.row_tokens
        assert successors is not None, "a drafter that looks ahead is given what the target says"
        assert tokens is not None
        n_rows = tokens.shape[1]
        last = torch.tensor([[self.tokens]]).clamp(max=n_rows).expand(tokens.shape[0], -1)
        verified = pad(tokens, (0, 1), value=-1).gather(1, last)[:, 0] >= 0
        top = torch.tensor([self.layout.window[-1]]).clamp(max=n_rows - 1)
        new = successors[:, :, 0].gather(1, top.expand(tokens.shape[0], -1))
        lowest = torch.cat([tokens[:, :1], window[:, 0, 1:]], 1)
        return verified, torch.cat([lowest[:, None], window[:, 1:], new[:, None]], 1)

    def _learned(self, accepted: Accepted, pool: Tensor, columns: Tensor, verified: Tensor) -> Tensor:
        """Return the pool with the n-grams of the processed text and of the columns."""
        path = accepted.path
        longer, width = pad(path, (0, self.levels)), path.shape[1]
        text = torch.stack([longer[:, ahead : ahead + width] for ahead in range(self.levels + 1)], 2)
        ends = torch.arange(width, device=path.device) + self.levels
        is_text = (ends <= accepted.n_path[:, None]) & (accepted.n_path > 0)[:, None]
        is_column = verified[:, None].expand(-1, self.columns)
        return self.pool.add(pool, torch.cat([text, columns.transpose(1, 2)], 1), torch.cat([is_text, is_column], 1))

    def _runs(self, accepted: Accepted) -> Tensor:
        """Return a window of pieces of the last processed text, int64 [B, N - 1, W]; a shorter text repeats."""
        needed = self.levels + self.columns - 1
        back = torch.arange(needed - 1, -1, -1, device=accepted.path.device)
        n_path = accepted.n_path[:, None]
        text = accepted.path.gather(1, (n_path - back) % (n_path + 1))
        return torch.stack([text[:, level : level + self.columns] for level in range(self.levels)], 1)
