"""Prompt lookup (Saxena 2023; LLMA, Yang et al. 2023): copy what followed the last tokens where they stood before."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from speccompile.families.site import Site
from speccompile.step import ops
from speccompile.step.draft import Accepted, Drafted, Drafter, State
from speccompile.tree import Tree


def make(site: Site) -> Drafter:
    """The text is the only state."""
    ngram = site.plan.drafter.ngram
    assert ngram is not None, "the plan decides it"
    return PromptLookup(site.tree, ngram, site.shape.batch_size, site.shape.rows)


class PromptLookup(Drafter):
    """Finds the longest matches of the text's end in the text, of at most `ngram` tokens; of equal ones the latest.

    The first path from the root to a leaf copies what followed the best match, the second the next best, and so on; a
    node on several paths belongs to the first. Paths without a match of their own copy from the best one. The only
    state is the text. Where a match overlaps the end, the copy goes round: the period is repeated.
    """

    shape: Tree

    def __init__(self, tree: Tree, ngram: int, batch_size: int, rows: int) -> None:
        super().__init__()
        self.shape, self.tokens = tree, tree.drafts
        self.ngram, self.batch_size, self.rows = ngram, batch_size, rows
        self.leaves = [lineage for lineage, its in zip(tree.lineages, tree.children, strict=True) if not its]

    def states(self) -> list[State]:
        return [State("tokens", torch.int64, (self.batch_size, self.rows))]

    def forward(self, accepted: Accepted, states: list[Tensor]) -> Drafted:
        text = ops.commit(states[0], accepted.path, accepted.length, 1)  # [B, S]
        end = (accepted.length + accepted.n_path)[:, None]  # [B, 1]: where the bonus token stands
        best, place = self._matches(text, end)
        ahead, source = self._copied(place)
        period = (end - source).clamp(min=1)
        drafts = text.gather(1, (source + 1 + ahead % period).clamp(max=self.rows - 1))
        n_total = torch.where(best[:, 0] >= 0, 1 + self.tokens, 1)
        return Drafted(torch.cat([text.gather(1, end), drafts], 1), n_total, [text])

    def _matches(self, text: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
        """The best places int64 [B, leaves] where a match ends, and their rank int64, -1 where there is no match."""
        places = torch.arange(self.rows, device=text.device)
        matched = torch.ones_like(text, dtype=torch.bool)
        score = torch.zeros_like(text)  # tokens matched, ending at this place
        for back in range(self.ngram):
            wanted = text.gather(1, (end - back).clamp(min=0))
            # A place before the text's beginning holds -1, which is no token; neither does the text have one there.
            matched = matched & (pad(text[:, : self.rows - back], (back, 0), value=-1) == wanted) & (end >= back)
            score = score + matched.long()
        ranked = torch.where((places < end) & (score > 0), score * self.rows + places, -1)
        if len(self.leaves) == 1:
            return ranked.max(1, keepdim=True)
        best, place = ranked.topk(len(self.leaves), dim=1)
        place = torch.where(
            best >= 0, place, 0
        )  # which of the places without a match came up is a matter of the engine
        return best, torch.where(best >= 0, place, place[:, :1])

    def _copied(self, place: Tensor) -> tuple[Tensor, Tensor]:
        """Of every draft: how far it lies behind its path's first, int64 [N], and its match, int64 [B, N] or [B, 1]."""
        if len(self.leaves) == 1:
            return torch.arange(self.tokens, device=place.device), place
        nodes = range(1, self.tokens + 1)
        first = [next(leaf for leaf, lineage in enumerate(self.leaves) if node in lineage) for node in nodes]
        ahead = torch.tensor(self.shape.depths[1:]) - 1
        return ahead, place.index_select(1, torch.tensor(first))
