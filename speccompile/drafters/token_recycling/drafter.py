"""Token Recycling (Luo et al. 2024): a table of the target's most probable next tokens, read depth by depth.

Column r of row t holds the target's latest r-th most probable token after token t, plus one; 0 is none. Every row of a
verification writes to the table, also those of rejected drafts: the target's predictions after them are equally valid.
All batch slots share one table. Entries of other texts are only drafts: they change the acceptance and not the output.
"""

import torch
from torch import Tensor

from speccompile.compiler.step.draft import Accepted, Drafted, Drafter, State
from speccompile.compiler.step.draft.children import levels
from speccompile.contract import PERSISTENT_PREFIX
from speccompile.drafters.context import DrafterContext
from speccompile.tree import Tree


def make(context: DrafterContext) -> Drafter:
    """Return the drafter, whose only state is the table."""
    return TokenRecycling(context.tree, context.drafter.successors, context.vocabulary_size)


class TokenRecycling(Drafter):
    """Drafts the tree in which child r of a node is the table's entry of rank r after the node's token.

    A node without an entry is no draft, and neither are its descendants: the window ends with the last draft. Drafts
    are valid tokens for any content of the table, invalid numbers included.
    """

    shape: Tree

    def __init__(self, tree: Tree, successors: int, vocabulary: int) -> None:
        """successors: number K of the table's columns; vocabulary: size V."""
        super().__init__()
        self.shape, self.tokens, self.target_top_k, self.vocabulary = tree, tree.drafts, successors, vocabulary

    def states(self) -> list[State]:
        """Return the state kept.table int64 [V + 1, K]. The last row is a dummy target for rows without a token or with
        a later duplicate."""
        return [
            State(f"{PERSISTENT_PREFIX}table", torch.int64, (self.vocabulary + 1, self.target_top_k), is_batched=False)
        ]

    def forward(self, accepted: Accepted, states: list[Tensor]) -> Drafted:
        table = self._updated(accepted, states[0])
        bonus = accepted.path.gather(1, accepted.n_path[:, None])
        drafts = self._expanded(table, bonus)  # [B, N]
        last = ((drafts > 0).long() * torch.arange(1, self.tokens + 1, device=drafts.device)).amax(1)
        n_total = torch.where(accepted.n_path > 0, 1 + last, 1)
        return Drafted(torch.cat([bonus, (drafts - 1).clamp(min=0)], 1), n_total, [table])

    def _expanded(self, table: Tensor, bonus: Tensor) -> Tensor:
        """Return the token plus one of every node below the bonus token int64 [B, 1], in order, int64 [B, N]; 0 for no
        draft."""
        entries = [bonus + 1]
        for depth, level in enumerate(levels(self.shape)):
            first = self.shape.depths.index(depth)
            parents = entries[-1].index_select(1, torch.tensor([node - first for node in level.nodes]))
            rows = table.index_select(0, self._row(parents - 1).flatten())
            ranked = rows.view(bonus.shape[0], len(level.nodes), self.target_top_k)[:, :, : level.branching]
            entries.append(level.pick(ranked).clamp(0, self.vocabulary))
        return torch.cat(entries[1:], 1)

    def _row(self, tokens: Tensor) -> Tensor:
        """Return the table's rows of tokens; -1 has the dummy row."""
        return torch.where(tokens >= 0, tokens, self.vocabulary)

    def _updated(self, accepted: Accepted, table: Tensor) -> Tensor:
        """Return the table updated by a round: the target's most probable tokens for rows with logits; for other tokens
        of the text, their successors in the text before the known entries. The last of several rows of a token wins."""
        assert accepted.successors is not None, "a drafter that recycles is given what the target says"
        assert accepted.row_tokens is not None
        # Selected, so that the trace has one symbolic width instead of two equal ones.
        rows = torch.arange(accepted.row_tokens.shape[1], device=table.device)
        said = accepted.successors.index_select(1, rows).flatten(0, 1) + 1
        text, seen = self._text(accepted, table)
        tokens, rows = torch.cat([text, accepted.row_tokens.flatten()]), torch.cat([seen, said])
        place = torch.arange(tokens.shape[0], device=tokens.device)
        is_beaten = ((tokens[:, None] == tokens) & (place[:, None] < place)).any(1)
        writes = ~is_beaten & (tokens >= 0)
        # All writes to the dummy row are zeros, so their order does not matter.
        rows = torch.where(writes[:, None], rows, 0)
        return table.index_put((torch.where(writes, tokens, self.vocabulary),), rows)

    def _text(self, accepted: Accepted, table: Tensor) -> tuple[Tensor, Tensor]:
        """Return the committed tokens except the last, int64 [P], -1 elsewhere, and their new rows int64 [P, K], with
        P = B * (W + 1). A row has the token's distinct successors in the text, the latest first, then known entries."""
        path = accepted.path
        place = torch.arange(path.shape[1], device=path.device)
        is_text = place + 1 < accepted.n_path[:, None]
        tokens = torch.where(is_text, path, -1)
        following = path.gather(1, (place + 1).clamp(max=path.shape[1] - 1).expand(path.shape[0], -1))
        same = (tokens[:, :, None] == tokens[:, None, :]) & is_text[:, None, :]  # [B, W + 1, W + 1]
        pair = same & (following[:, :, None] == following[:, None, :])
        is_latest = ~(pair & (place[:, None] < place)).any(2)
        order = torch.where(same & is_latest[:, None, :], place.float(), -1.0)
        none = order.new_full((*tokens.shape, self.target_top_k), -1.0)  # a window may be narrower than the table
        latest, index = torch.cat([order, none], 2).topk(self.target_top_k, 2)
        fresh = following.gather(1, index.clamp(max=path.shape[1] - 1).flatten(1)).view(-1, self.target_top_k) + 1
        tokens = tokens.flatten()
        fresh = torch.where(latest.flatten(0, 1) >= 0, fresh, 0)
        return tokens, self._merged(fresh, table.index_select(0, self._row(tokens)))

    def _merged(self, fresh: Tensor, known: Tensor) -> Tensor:
        """Return the first K distinct entries int64 [R, K] of `fresh` and `known`, both int64 [R, K], 0 for none."""
        is_new = (known > 0) & ~(known[:, :, None] == fresh[:, None, :]).any(2)
        both, kept = torch.cat([fresh, known], 1), torch.cat([fresh > 0, is_new], 1)
        rank = torch.arange(2 * self.target_top_k, 0, -1, device=fresh.device).float()
        score, index = torch.where(kept, rank, 0.0).topk(self.target_top_k, 1)
        return torch.where(score > 0, both.gather(1, index), 0)
