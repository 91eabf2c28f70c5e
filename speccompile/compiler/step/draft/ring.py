"""Persistent ring buffer of the latest tokens of earlier answers.

Every batch slot writes its own lane, so that concurrent answers are not mixed, and reads all lanes. A round appends its
committed tokens. A window wider than a round's is prefilled text: it is not an answer, unless it continues one, as when
the drafter catches up on rounds without drafts.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from speccompile.compiler.step import ops
from speccompile.compiler.step.draft import Accepted, State
from speccompile.contract import PERSISTENT_PREFIX

RING, PLACE = f"{PERSISTENT_PREFIX}ring", f"{PERSISTENT_PREFIX}ring.place"


class _Change(NamedTuple):
    """Update of the lanes of a run's rows: tokens int64 [B, W + 2] from start int64 [B] on; their row of
    kept.ring.place; and the position of the next token, int64 [B]."""

    tokens: Tensor
    start: Tensor
    place: Tensor
    following: Tensor


class AnswerRing:
    """kept.ring int64 [B, L + slack]: token ids plus one, and 0 for none: after the last written token, and between
    answers. A lane restarts once L tokens are written, and a window may reach beyond them.

    kept.ring.place int64 [B, 3]: position of the next token; length of the text of the last answer when it was written;
    and whether that answer may continue.
    """

    def __init__(self, batch_size: int, lane: int, slack: int, nodes: int) -> None:
        """lane: tokens of each batch slot, L; slack: width of the widest window and two more; nodes: of a round's
        window."""
        self.batch_size, self.lane, self.size, self.nodes = batch_size, lane, lane + slack, nodes

    def states(self) -> list[State]:
        return [
            State(RING, torch.int64, (self.batch_size, self.size), is_batched=False),
            State(PLACE, torch.int64, (self.batch_size, 3), is_batched=False),
        ]

    def append(self, states: list[Tensor], accepted: Accepted) -> tuple[list[Tensor], Tensor]:
        """Return the states with the tokens that this run has committed, and the position of the next token in every
        lane, int64 [lanes].

        With several lanes, `accepted.batch_rows` names those of the run's rows.
        """
        (ring, place), rows = states, accepted.batch_rows
        if rows is None:
            change = self._change(ring, place, accepted)
            written = ops.commit(ring, change.tokens, change.start, 1)
            return [written, ops.commit(place, change.place, torch.zeros_like(change.start), 1)], change.following
        change = self._change(ring.index_select(0, rows), place.index_select(0, rows), accepted)
        places = torch.arange(change.tokens.shape[1], device=ring.device)
        ring = ring.index_put((rows[:, None], change.start[:, None] + places), change.tokens)
        place = place.index_put((rows,), change.place)
        return [ring, place], self._begun(place[:, 0]).index_put((rows,), change.following)

    def _begun(self, start: Tensor) -> Tensor:
        """Return the position at which lanes continue, int64 [B]: the beginning for a full lane."""
        return torch.where((start >= 0) & (start < self.lane), start, 0)

    def _change(self, ring: Tensor, place: Tensor, accepted: Accepted) -> "_Change":
        """Return the update of the lanes of a run's rows. ring int64 [B, S], place int64 [B, 3]: of these rows."""
        path, n_path, length = accepted.path, accepted.n_path, accepted.length
        start, expected, is_open = place[:, 0], place[:, 1], place[:, 2]
        start = self._begun(start)
        goes_on = (is_open > 0) & (expected == length)
        places = torch.arange(path.shape[1] + 1, device=path.device)  # the window, and two more
        is_answer = goes_on | (places[-1:] <= self.nodes + 1)
        count = torch.where(is_answer, n_path, 0)
        apart = (~goes_on & (count > 0)).long()

        behind = places - apart[:, None]
        tokens = path.gather(1, behind.clamp(0, path.shape[1] - 1)) + 1
        written = torch.where((behind >= 0) & (behind < count[:, None]), tokens, 0)
        old = ring.gather(1, start[:, None] + places)
        used = (places <= (apart + count)[:, None]) & (count > 0)[:, None]
        tokens = torch.where(used, written, old)

        following = start + apart + count
        is_active = n_path > 0
        now = torch.stack(
            [
                following,
                torch.where(is_active, length + n_path, expected),
                torch.where(is_active, is_answer.long(), is_open),
            ],
            1,
        )
        return _Change(tokens, start, now, following)

    def age(self, following: Tensor) -> Tensor:
        """Return int64 [B * S]: rank of each position by age over all lanes, 0 for the oldest."""
        places = torch.arange(self.size, device=following.device)
        since = (places - following[:, None] + self.size) % self.size  # [B, S]
        lanes = torch.arange(self.batch_size, device=following.device)[:, None]
        return (since * self.batch_size + lanes).flatten()
