"""Earlier occurrences of a text's end, and their continuations: in the text itself, and in earlier answers."""

from typing import Protocol

import torch
from torch import Tensor

from speccompile.compiler.step.draft.lookup import best_matches, gather_continuations, match_lengths, shift_right
from speccompile.compiler.step.draft.votes import Continuations


class Occurrences(Protocol):
    """All positions at which the last tokens of a text may occur."""

    def followed(self, count: int, depth: int) -> Continuations:
        """Return the `count` best occurrences, and `depth` tokens after each."""
        ...

    def behind(self, token: Tensor) -> "Occurrences":
        """Return the occurrences after the text has got one more token int64 [B, 1]."""
        ...


class TextMatches:
    """Occurrences in the text itself; the continuation repeats if an occurrence is so near to the end.

    text int64 [B, S]; end int64 [B, 1]: position of its last token; lengths: as from `match_lengths`.
    """

    def __init__(self, text: Tensor, end: Tensor, most: int, lengths: Tensor | None = None) -> None:
        self.text, self.end, self.most = text, end, most
        self.lengths = match_lengths(text, end, most) if lengths is None else lengths

    def followed(self, count: int, depth: int) -> Continuations:
        places = torch.arange(self.text.shape[1], device=self.text.device)
        matched, place = best_matches(self.lengths, places, count)
        ahead = torch.arange(depth, device=place.device).repeat(count)  # [R * K]
        each = place[:, :, None].expand(-1, -1, depth).flatten(1)
        return Continuations(
            matched, gather_continuations(self.text, self.end, each, ahead).unflatten(1, (count, depth))
        )

    def behind(self, token: Tensor) -> "TextMatches":
        places, end = torch.arange(self.text.shape[1], device=self.text.device), self.end + 1
        text = torch.where(places == end, token, self.text)
        return TextMatches(text, end, self.most, _extended(self.lengths, (text == token) & (places < end), self.most))


class RingMatches:
    """Occurrences in the ring of earlier answers; see `ring.AnswerRing`.

    values int64 [L, S]: token ids plus one, in separate lanes, 0 for none; age int64 [L * S]: as in `best_matches`;
    vocabulary: number of tokens, V.
    """

    def __init__(self, values: Tensor, age: Tensor, vocabulary: int, lengths: Tensor, most: int) -> None:
        self.values, self.age, self.vocabulary, self.lengths, self.most = values, age, vocabulary, lengths, most

    @classmethod
    def of(cls, values: Tensor, age: Tensor, vocabulary: int, text: Tensor, end: Tensor, most: int) -> "RingMatches":
        """Return the matches of a text's end in the ring. text, end: as in `TextMatches`."""
        batch = text.shape[0]
        matched = torch.ones((batch, *values.shape), dtype=torch.bool, device=text.device)  # [B, L, S]
        lengths = torch.zeros_like(matched, dtype=torch.int64)
        for back in range(most):
            wanted = text.gather(1, (end - back).clamp(min=0)) + 1
            matched = matched & (shift_right(values, back, 0) == wanted[:, :, None]) & (end >= back)[:, :, None]
            lengths = lengths + matched.long()
        return cls(values, age, vocabulary, lengths, most)

    def followed(self, count: int, depth: int) -> Continuations:
        size = self.values.shape[1]
        matched, place = best_matches(self.lengths.flatten(1), self.age, count)
        ahead = 1 + torch.arange(depth, device=place.device)
        index = place[:, :, None] + ahead  # [B, R, K]
        found = self.values.flatten()[index.clamp(max=self.age.shape[0] - 1)] - 1
        is_there = ((place % size)[:, :, None] + ahead < size) & (found < self.vocabulary)
        return Continuations(matched, torch.where(is_there, found, -1))

    def behind(self, token: Tensor) -> "RingMatches":
        lengths = _extended(self.lengths, self.values == (token + 1)[:, :, None], self.most)
        return RingMatches(self.values, self.age, self.vocabulary, lengths, self.most)


def _extended(lengths: Tensor, is_token: Tensor, most: int) -> Tensor:
    """Return match lengths [.., S] after one more token. is_token bool [.., S]: positions that hold the token."""
    return torch.where(is_token, (shift_right(lengths, 1, 0) + 1).clamp(max=most), 0)
