"""A pool of n-grams by their first token: of each list the latest, the last first."""

import torch
from torch import Tensor

BUCKETS = 4096
"""Lists at most: tokens beyond share one, whose room goes to those that were seen last."""

_BASE, _MODULUS = 1_000_003, 2**40
"""Of the numbers that stand for n-grams where these are compared: products of both stay below 2^63. Where two n-grams
had one number, the pool would lose the older: a guess."""


class NgramPool:
    """Lists of the last `room` n-grams that began with the same token, in a tensor int64 [lists + 1, room * n].

    Numbers are tokens plus one; zeros are no n-gram. A token's list is that of token % lists. The last list is
    nobody's: it is written with zeros alone, so that it does not matter who comes last there.
    """

    def __init__(self, vocabulary: int, room: int, n: int) -> None:
        self.vocabulary, self.room, self.n = vocabulary, room, n
        self.lists = min(vocabulary, BUCKETS)

    @property
    def shape(self) -> tuple[int, int]:
        return self.lists + 1, self.room * self.n

    def find(self, pool: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """tokens int64 [B] -> what followed each of them, int64 [B, room, n - 1], and which of these there are, bool
        [B, room]. Whatever the pool holds, they are tokens."""
        found = self._lists(pool, tokens % self.lists)
        there = found[:, :, 0] == tokens[:, None] + 1
        return (found[:, :, 1:] - 1).clamp(0, self.vocabulary - 1), there

    def add(self, pool: Tensor, ngrams: Tensor, valid: Tensor) -> Tensor:
        """The pool with ngrams int64 [B, M, n] where valid bool [B, M], each list with the last first and none twice.

        An n-gram that was there moves to the front. Where rows of a batch write one list, the last row's is kept.
        """
        batch, count, _ = ngrams.shape
        place = torch.arange(count, device=pool.device)
        # None equals what is not valid, and that nothing: its number is below all others.
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
        """buckets int64 [L] -> int64 [L, room, n]."""
        return pool.index_select(0, buckets).view(-1, self.room, self.n)

    def _without_rivals(self, bucket: Tensor, writes: Tensor) -> Tensor:
        """writes bool [B, M], without those whose list a later row writes too."""
        batch = writes.shape[0]
        if batch == 1:
            return writes
        rows = torch.arange(batch, device=bucket.device)[:, None].expand_as(bucket).flatten()
        lists = torch.where(writes, bucket, self.lists).flatten()
        beaten = ((lists[:, None] == lists) & (rows[:, None] < rows)).any(1)
        return writes & ~beaten.view_as(writes)


def _numbers(entries: Tensor) -> Tensor:
    """What stands for each of int64 [.., n], int64 [..]: 0 for one that is empty."""
    number = entries[..., 0]
    for column in range(1, entries.shape[-1]):
        number = (number * _BASE + entries[..., column]) % _MODULUS
    return number


def _last(marks: Tensor, place: Tensor) -> Tensor:
    """marks bool [.., M] -> the last place that is marked, int64 [..], -1 without any."""
    return torch.where(marks, place, -1).amax(-1)


def _at(rows: Tensor, index: Tensor) -> Tensor:
    """rows [B, M, n] at index int64 [B, K]: [B, K, n]."""
    return rows.gather(1, index[..., None].expand(-1, -1, rows.shape[2]))
