"""Looking up in the text what followed its last tokens where they stood before."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from speccompile.tree import Tree


class LookupResult(NamedTuple):
    """tokens int64 [B, N]: a draft for every node of the tree, in their order; matched int64 [B]: how many tokens of
    the text's end the best match has, 0 where there is none and the drafts mean nothing."""

    tokens: Tensor
    match_length: Tensor


def match_lengths(text: Tensor, end: Tensor, most: int) -> Tensor:
    """How many tokens, `most` at most, that end at each place of a text are those at its end: int64 [B, S], 0 from the
    end on. text, end as of `Lookup`."""
    places = torch.arange(text.shape[1], device=text.device)
    matched = torch.ones_like(text, dtype=torch.bool)
    lengths = torch.zeros_like(text)
    for back in range(most):
        wanted = text.gather(1, (end - back).clamp(min=0))
        # A place before the text's beginning holds -1, which is no token; neither does the text have one there.
        matched = matched & (shift_right(text, back, -1) == wanted) & (end >= back)
        lengths = lengths + matched.long()
    return torch.where(places < end, lengths, 0)


def shift_right(rows: Tensor, by: int, before: int) -> Tensor:
    """[.., S], each entry `by` places further back; `before` stands where none comes to."""
    return pad(rows[..., : rows.shape[-1] - by], (by, 0), value=before)


def best_matches(lengths: Tensor, age: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The longest matches, and of equals the latest: their lengths and places, int64 [B, count], 0 for both where there
    is none. lengths int64 [B, S]; age int64 [S]: numbers from 0 to S - 1, each once, the latest place's the largest."""
    size = lengths.shape[1]
    ranked = torch.where(lengths > 0, lengths * size + age, -1)
    if count == 1:
        best, place = ranked.max(1, keepdim=True)
    else:
        best, place = ranked.topk(count, dim=1)
    # which of the places without a match comes up is a matter of the engine
    return best.clamp(min=0) // size, torch.where(best >= 0, place, 0)


def gather_continuations(text: Tensor, end: Tensor, place: Tensor, ahead: Tensor) -> Tensor:
    """What follows places of a text, `ahead` tokens behind the first that does; beyond the end it goes round: what is
    copied is repeated. place, ahead int64 [B, N], or [N], or either 1 wide -> int64 [B, N]."""
    period = (end - place).clamp(min=1)
    return text.gather(1, (place + 1 + ahead % period).clamp(max=text.shape[1] - 1))


class Lookup(nn.Module):
    """Finds the longest matches of the text's end in the text, of at most `ngram` tokens; of equal ones the latest.

    The first path from the root to a leaf copies what followed the best match, the second the next best, and so on; a
    node on several paths belongs to the first. Paths without a match of their own copy from the best one. Where a match
    overlaps the end, the copy goes round: the period is repeated.
    """

    def __init__(self, tree: Tree, ngram: int) -> None:
        super().__init__()
        self.tree, self.ngram = tree, ngram
        self.leaves = [lineage for lineage, its in zip(tree.root_paths, tree.children, strict=True) if not its]

    def forward(self, text: Tensor, end: Tensor) -> LookupResult:
        """text int64 [B, S]; end int64 [B, 1]: where its last token stands. What lies behind is never copied."""
        matched, place = self._matches(text, end)
        ahead, source = self._copied(place)
        return LookupResult(gather_continuations(text, end, source, ahead), matched[:, 0])

    def _matches(self, text: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
        """How many tokens match, and where the match ends, int64 [B, leaves]; paths without one have the best one."""
        places = torch.arange(text.shape[1], device=text.device)
        matched, place = best_matches(match_lengths(text, end, self.ngram), places, len(self.leaves))
        if len(self.leaves) > 1:
            place = torch.where(matched > 0, place, place[:, :1])
        return matched, place

    def _copied(self, place: Tensor) -> tuple[Tensor, Tensor]:
        """Of every draft: how far it lies behind its path's first, int64 [N], and its match, int64 [B, N] or [B, 1]."""
        if len(self.leaves) == 1:
            return torch.arange(self.tree.drafts, device=place.device), place
        nodes = range(1, self.tree.drafts + 1)
        first = [next(leaf for leaf, lineage in enumerate(self.leaves) if node in lineage) for node in nodes]
        ahead = torch.tensor(self.tree.depths[1:]) - 1
        return ahead, place.index_select(1, torch.tensor(first))
