"""Where a text's end stood before, and what followed: in the text itself, and among what earlier answers left."""

from typing import Protocol

import torch
from torch import Tensor

from speccompile.compiler.step.draft.lookup import best_matches, gather_continuations, match_lengths, shift_right
from speccompile.compiler.step.draft.votes import Continuations


class Occurrences(Protocol):
    """Every place where the last tokens of a text may stand."""

    def followed(self, count: int, depth: int) -> Continuations:
        """The `count` best places, and `depth` tokens behind each."""
        ...

    def behind(self, token: Tensor) -> "Occurrences":
        """The same, the text having one token int64 [B, 1] more."""
        ...


class TextMatches:
    """Of the text in itself; what follows goes round where a place lies so near to the end.

    text int64 [B, S]; end int64 [B, 1]: where its last token stands; lengths: as `match_lengths` gives them.
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
    """Of the text in a ring of earlier answers; see `ring.Ring`.

    values int64 [L, S]: tokens, each one more than it is, in lanes that are apart, 0 where there is none; age int64
    [L * S]: as of `best_places`; vocabulary: tokens there are, V.
    """

    def __init__(self, values: Tensor, age: Tensor, vocabulary: int, lengths: Tensor, most: int) -> None:
        self.values, self.age, self.vocabulary, self.lengths, self.most = values, age, vocabulary, lengths, most

    @classmethod
    def of(cls, values: Tensor, age: Tensor, vocabulary: int, text: Tensor, end: Tensor, most: int) -> "RingMatches":
        """text, end: as of `InText`."""
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
    """Lengths of matches [.., S] of an end that has one token more, where is_token bool [.., S] says that it stands."""
    return torch.where(is_token, (shift_right(lengths, 1, 0) + 1).clamp(max=most), 0)
