"""Pool of n-grams by their first token: lists of the latest n-grams, the latest first."""

import torch
from torch import Tensor

BUCKETS = 4096
"""Maximum number of lists. Larger vocabularies share lists, which keep the latest n-grams."""

_BASE, _MODULUS = 1_000_003, 2**40
"""Base and modulus of the hash that compares n-grams: their product is below 2^63. On a collision, the pool loses the
older n-gram, which costs a draft."""


class NgramPool:
    """Lists of the last `room` n-grams with the same first token, in a tensor int64 [lists + 1, room * n].

    Entries are tokens plus one; zeros are no n-gram. A token's list is number token % lists. The last list is a dummy
    target for unused writes, which are all zeros, so their order does not matter.
    """

    def __init__(self, vocabulary: int, room: int, n: int) -> None:
        self.vocabulary, self.room, self.n = vocabulary, room, n
        self.lists = min(vocabulary, BUCKETS)

    @property
    def shape(self) -> tuple[int, int]:
        return self.lists + 1, self.room * self.n

    def find(self, pool: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return continuations int64 [B, room, n - 1] of tokens int64 [B], and whether each exists, bool [B, room].
        Continuations are valid tokens for any content of the pool."""
        found = self._lists(pool, tokens % self.lists)
        there = found[:, :, 0] == tokens[:, None] + 1
        return (found[:, :, 1:] - 1).clamp(0, self.vocabulary - 1), there

    def add(self, pool: Tensor, ngrams: Tensor, valid: Tensor) -> Tensor:
        """Return the pool with ngrams int64 [B, M, n] added where valid bool [B, M], in lists without duplicates, the
        latest first. An n-gram that is present moves to the front. If several batch rows write a list, the last wins.
        """
        batch, count, _ = ngrams.shape
        place = torch.arange(count, device=pool.device)
        # Invalid n-grams equal no valid one: their number is below all others.
        bucket, number = ngrams[:, :, 0] % self.lists, torch.where(valid, _numbers(ngrams + 1), -1)
        last_equal = _last(number[:, :, None] == number[:, None], place)
        latest = valid & (last_equal == place)
        mine = (bucket[:, :, None] == bucket[:, None]) & latest[:, None]  # [B, M, M]
        writes = self._without_rivals(bucket, latest & (_last(mine, place) == place))  # the last of a list writes it

        old = self._lists(pool, bucket.flatten())  # [B * M, room, n]
        numbers = _numbers(old).view(batch, count, self.room)
        again = (numbers[..., None] == number[:, None, None]).long().amax(3)
        rank = torch.arange(self.room, 0, -1, device=pool.device)
        rank_old = torch.where((numbers > 0) & (again == 0), rank, 0)
        rank_new = torch.where(mine, place + self.room + 1, 0)
        score, index = torch.cat([rank_new, rank_old], 2).float().topk(self.room, 2)
        new = _at(ngrams + 1, index.clamp(max=count - 1).flatten(1)).view_as(old)
        kept = _at(old, (index - count).clamp(min=0).flatten(0, 1))
        lists = torch.where((index < count).flatten(0, 1)[..., None], new, kept)
        lists = torch.where((writes[:, :, None] & (score > 0)).flatten(0, 1)[..., None], lists, 0)
        into = torch.where(writes, bucket, self.lists).flatten()[:, None].expand(-1, self.room * self.n)
        return pool.scatter(0, into, lists.flatten(1))

    def _lists(self, pool: Tensor, buckets: Tensor) -> Tensor:
        """Return the lists int64 [L, room, n] of buckets int64 [L]."""
        return pool.index_select(0, buckets).view(-1, self.room, self.n)

    def _without_rivals(self, bucket: Tensor, writes: Tensor) -> Tensor:
        """Return writes bool [B, M] without those to a list that a later row writes as well."""
        batch = writes.shape[0]
        if batch == 1:
            return writes
        rows = torch.arange(batch, device=bucket.device)[:, None].expand_as(bucket).flatten()
        lists = torch.where(writes, bucket, self.lists).flatten()
        beaten = ((lists[:, None] == lists) & (rows[:, None] < rows)).any(1)
        return writes & ~beaten.view_as(writes)


def _numbers(entries: Tensor) -> Tensor:
    """Return the hashes int64 [..] of n-grams int64 [.., n]: 0 for an empty one."""
    number = entries[..., 0]
    for column in range(1, entries.shape[-1]):
        number = (number * _BASE + entries[..., column]) % _MODULUS
    return number


def _last(marks: Tensor, place: Tensor) -> Tensor:
    """Return the last True position int64 [..] of marks bool [.., M], -1 without any."""
    return torch.where(marks, place, -1).amax(-1)


def _at(rows: Tensor, index: Tensor) -> Tensor:
    """Gather rows [B, M, n] at index int64 [B, K]: [B, K, n]."""
    return rows.gather(1, index[..., None].expand(-1, -1, rows.shape[2]))
