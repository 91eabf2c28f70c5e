"""What earlier answers said, the latest of it, kept from one generation to the next.

Every row of a batch writes a lane of its own, so that answers that are made side by side are not mixed, and reads all
of them. A round appends what it has committed. A window that is wider than a round's is text that was given: it is not
an answer, unless it goes on with one, as where the drafter catches up on rounds without drafts.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from speccompile.compiler.step import ops
from speccompile.compiler.step.draft import Accepted, State
from speccompile.contract import PERSISTENT_PREFIX

RING, PLACE = f"{PERSISTENT_PREFIX}ring", f"{PERSISTENT_PREFIX}ring.place"


class _Change(NamedTuple):
    """Of the lanes of a run's rows: tokens int64 [B, W + 2] from start int64 [B] on; their row of kept.ring.place; and
    the place of the next token, int64 [B]."""

    tokens: Tensor
    start: Tensor
    place: Tensor
    following: Tensor


class AnswerRing:
    """kept.ring int64 [B, L + slack]: tokens, each one more than it is, and 0 where there is none: behind what was
    written last, and between answers. A lane begins anew once L tokens are written, and a window may reach beyond them.

    kept.ring.place int64 [B, 3]: where the next token goes; the length of the text whose answer was written last, when
    it was; and whether it may go on.
    """

    def __init__(self, batch_size: int, lane: int, slack: int, nodes: int) -> None:
        """lane: tokens of each row, L; slack: of the widest window and two more; nodes: of a round's window."""
        self.batch_size, self.lane, self.size, self.nodes = batch_size, lane, lane + slack, nodes

    def states(self) -> list[State]:
        return [
            State(RING, torch.int64, (self.batch_size, self.size), is_batched=False),
            State(PLACE, torch.int64, (self.batch_size, 3), is_batched=False),
        ]

    def append(self, states: list[Tensor], accepted: Accepted) -> tuple[list[Tensor], Tensor]:
        """The states with what this run has committed, and the place of the next token in every lane, int64 [lanes].

        Where there are several lanes, `accepted.batch_rows` says which are those of the run's rows.
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
        """Where lanes go on, int64 [B]: at the beginning, where they are full."""
        return torch.where((start >= 0) & (start < self.lane), start, 0)

    def _change(self, ring: Tensor, place: Tensor, accepted: Accepted) -> "_Change":
        """What the rows of a run do to their lanes. ring int64 [B, S], place int64 [B, 3]: of these rows."""
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
        """int64 [B * S]: 0 for the oldest place of all lanes, and so on."""
        places = torch.arange(self.size, device=following.device)
        since = (places - following[:, None] + self.size) % self.size  # [B, S]
        lanes = torch.arange(self.batch_size, device=following.device)[:, None]
        return (since * self.batch_size + lanes).flatten()
