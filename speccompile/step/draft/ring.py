"""What earlier answers said, the latest of it, kept from one generation to the next.

Every row of a batch writes a lane of its own, so that answers that are made side by side are not mixed, and reads all
of them. A round appends what it has committed. A window that is wider than a round's is text that was given: it is not
an answer, unless it goes on with one, as where the drafter catches up on rounds without drafts.
"""

import torch
from torch import Tensor

from speccompile.contract import KEPT
from speccompile.step import ops
from speccompile.step.draft import Accepted, State

RING, PLACE = f"{KEPT}ring", f"{KEPT}ring.place"


class Ring:
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
            State(RING, torch.int64, (self.batch_size, self.size)),
            State(PLACE, torch.int64, (self.batch_size, 3)),
        ]

    def append(self, states: list[Tensor], accepted: Accepted) -> tuple[list[Tensor], Tensor]:
        """The states with what this run has committed, and the place of the next token, int64 [B]."""
        ring, place = states
        path, n_path, length = accepted.path, accepted.n_path, accepted.length
        start, expected, is_open = place[:, 0], place[:, 1], place[:, 2]
        start = torch.where((start >= 0) & (start < self.lane), start, 0)
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
        ring = ops.commit(ring, torch.where(used, written, old), start, 1)

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
        return [ring, ops.commit(place, now, torch.zeros_like(start), 1)], following

    def age(self, following: Tensor) -> Tensor:
        """int64 [B * S]: 0 for the oldest place of all lanes, and so on."""
        places = torch.arange(self.size, device=following.device)
        since = (places - following[:, None] + self.size) % self.size  # [B, S]
        lanes = torch.arange(self.batch_size, device=following.device)[:, None]
        return (since * self.batch_size + lanes).flatten()
