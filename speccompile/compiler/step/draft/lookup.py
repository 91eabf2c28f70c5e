"""Prompt lookup: find earlier occurrences of the text's last tokens, and copy what followed."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from speccompile.tree import Tree


class LookupResult(NamedTuple):
    """Result of a lookup. tokens int64 [B, N]: a draft for every node of the tree, in their order; match_length int64
    [B]: tokens of the text's end that the best match has, 0 if there is no match; the drafts then mean nothing."""

    tokens: Tensor
    match_length: Tensor


def match_lengths(text: Tensor, end: Tensor, most: int) -> Tensor:
    """Return the length of the match that ends at each position of a text, at most `most`: int64 [B, S], 0 from the end
    on. text, end: as in `Lookup`."""
    places = torch.arange(text.shape[1], device=text.device)
    matched = torch.ones_like(text, dtype=torch.bool)
    lengths = torch.zeros_like(text)
    for back in range(most):
        wanted = text.gather(1, (end - back).clamp(min=0))
        # A position before the text's beginning holds -1, which is no token; the text has no token there either.
        matched = matched & (shift_right(text, back, -1) == wanted) & (end >= back)
        lengths = lengths + matched.long()
    return torch.where(places < end, lengths, 0)


def shift_right(rows: Tensor, by: int, before: int) -> Tensor:
    """Shift [.., S] right by `by` positions; the first positions get `before`."""
    return pad(rows[..., : rows.shape[-1] - by], (by, 0), value=before)


def best_matches(lengths: Tensor, age: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the longest matches, and the latest of equal ones: their lengths and positions, int64 [B, count], 0 for
    both without a match. lengths int64 [B, S]; age int64 [S]: a permutation of 0 to S - 1, the largest at the latest
    position."""
    size = lengths.shape[1]
    ranked = torch.where(lengths > 0, lengths * size + age, -1)
    if count == 1:
        best, place = ranked.max(1, keepdim=True)
    else:
        best, place = ranked.topk(count, dim=1)
    # which position without a match comes up depends on the engine
    return best.clamp(min=0) // size, torch.where(best >= 0, place, 0)


def gather_continuations(text: Tensor, end: Tensor, place: Tensor, ahead: Tensor) -> Tensor:
    """Return the tokens that follow positions of a text, `ahead` tokens after the first one that does; beyond the end
    the copy repeats from its beginning. place, ahead int64 [B, N], or [N], or either 1 wide -> int64 [B, N]."""
    period = (end - place).clamp(min=1)
    return text.gather(1, (place + 1 + ahead % period).clamp(max=text.shape[1] - 1))


class Lookup(nn.Module):
    """Find the longest matches of the text's end in the text, of at most `ngram` tokens; of equal ones the latest.

    The first path from the root to a leaf copies what followed the best match, the second path the next best, and so
    on; a node on several paths belongs to the first of them. Paths without a match copy from the best one. If a match
    overlaps the end, the copy repeats the period.
    """

    def __init__(self, tree: Tree, ngram: int) -> None:
        super().__init__()
        self.tree, self.ngram = tree, ngram
        self.leaves = [lineage for lineage, its in zip(tree.root_paths, tree.children, strict=True) if not its]

    def forward(self, text: Tensor, end: Tensor) -> LookupResult:
        """Look up the text int64 [B, S]; end int64 [B, 1]: position of its last token. Tokens after it are never
        copied."""
        matched, place = self._matches(text, end)
        ahead, source = self._copied(place)
        return LookupResult(gather_continuations(text, end, source, ahead), matched[:, 0])

    def _matches(self, text: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
        """Return match length and end position, int64 [B, leaves]; paths without a match have the position of the best
        one."""
        places = torch.arange(text.shape[1], device=text.device)
        matched, place = best_matches(match_lengths(text, end, self.ngram), places, len(self.leaves))
        if len(self.leaves) > 1:
            place = torch.where(matched > 0, place, place[:, :1])
        return matched, place

    def _copied(self, place: Tensor) -> tuple[Tensor, Tensor]:
        """Return for every draft its offset from its path's first draft, int64 [N], and its match, int64 [B, N] or [B,
        1]."""
        if len(self.leaves) == 1:
            return torch.arange(self.tree.drafts, device=place.device), place
        nodes = range(1, self.tree.drafts + 1)
        first = [next(leaf for leaf, lineage in enumerate(self.leaves) if node in lineage) for node in nodes]
        ahead = torch.tensor(self.tree.depths[1:]) - 1
        return ahead, place.index_select(1, torch.tensor(first))
