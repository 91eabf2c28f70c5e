"""Lookup in the source of an encoder-decoder, and in its answer: input-guided drafts for answers that repeat most of
their source (Aggressive Decoding: Sun et al. 2021, 2106.04970; Ge et al. 2022, 2205.10350)."""

import torch
from torch import Tensor, nn

from speccompile.compiler.step.draft.lookup import LookupResult, gather_continuations, match_lengths, shift_right


class SourceLookup(nn.Module):
    """Find the longest match of the answer's end, of at most `ngram` tokens, and copy what followed.

    Of equal ones a match in the source comes first, of these the one nearest to where the answer has come if it kept
    the source's length; then the latest in the answer. A copy from the source ends with its last token. In the first
    round, where nothing matches, `begin` copies the source from there on: its beginning is what most answers begin
    with.
    """

    def __init__(self, tokens: int, ngram: int, *, begin: bool) -> None:
        """tokens: number of drafts, a chain."""
        super().__init__()
        self.tokens, self.ngram, self.begin = tokens, ngram, begin

    def forward(
        self, text: Tensor, end: Tensor, source: Tensor, source_length: Tensor, is_first: Tensor
    ) -> LookupResult:
        """Look up the answer int64 [B, S] in the source int64 [B, E] and in itself. end int64 [B, 1]: position of its
        last token; source_length int64 [B]; is_first bool [B]: whether it has only the tokens with which it began, and
        the one after them."""
        size, aligned = source.shape[1], end - 1  # an answer begins with one token that is no part of it
        lengths = torch.cat(
            [self._in_source(text, end, source, source_length), match_lengths(text, end, self.ngram)], 1
        )
        age, scale = _ages(size, text, aligned)
        best, place = (lengths * scale + age).max(1, keepdim=True)
        matched = best // scale
        if self.begin:
            begins = (matched == 0) & is_first[:, None] & (aligned + 1 < source_length[:, None])
            place = torch.where(begins, aligned.clamp(max=size - 1), place)
            matched = torch.where(begins, 1, matched)
        ahead = torch.arange(self.tokens, device=text.device)
        behind = (place + 1 + ahead).minimum(source_length[:, None] - 1).clamp(0, size - 1)
        repeated = gather_continuations(text, end, (place - size).clamp(min=0), ahead)
        return LookupResult(torch.where(place < size, source.gather(1, behind), repeated), matched[:, 0])

    def _in_source(self, text: Tensor, end: Tensor, source: Tensor, source_length: Tensor) -> Tensor:
        """Return the length of the match that ends at each token of the source, int64 [B, E]; 0 where nothing
        follows."""
        matched, lengths = torch.ones_like(source, dtype=torch.bool), torch.zeros_like(source)
        for back in range(self.ngram):
            wanted = text.gather(1, (end - back).clamp(min=0))
            matched = matched & (shift_right(source, back, -1) == wanted) & (end >= back)
            lengths = lengths + matched.long()
        places = torch.arange(source.shape[1], device=source.device)
        return torch.where(places < source_length[:, None] - 1, lengths, 0)


def _ages(size: int, text: Tensor, aligned: Tensor) -> tuple[Tensor, int]:
    """Return ranks of the positions of the source and the answer among equal matches, int64 [B, E + S], all different
    in a batch slot, and a number above all of them."""
    rows = text.shape[1]
    places = torch.arange(size, device=text.device)
    distance = 2 * (places - aligned).abs() + (places > aligned).long()
    most = 2 * (size + rows) + 1
    own = torch.arange(rows, device=text.device).expand(text.shape[0], -1)
    return torch.cat([rows + most - distance, own], 1), rows + most + 1
