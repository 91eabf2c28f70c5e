"""Drafters that draft a whole block in one pass: what they learn, and how they are judged."""

import math
from abc import abstractmethod

import torch
from head import Head, Texts, rows_of, run_of
from losses import compared, wanted
from target import Seen, Target
from texts import SEQUENCE
from torch import Tensor

ANCHORS = 20  # blocks that are learnt of each text


class BlockHead(Head):
    """drafts: how many there are in a block, behind its anchor, which is the last token that is known."""

    drafts: int

    @abstractmethod
    def drafted(self, seen: Seen, anchors: Tensor) -> Tensor:
        """Logits [B, A, drafts, V] of the tokens behind each anchor [B, A], whose own features nobody has seen."""

    def loss(self, seen: Seen, weights: Tensor) -> Tensor:
        anchors = 8 + torch.multinomial(weights[:, 8 : SEQUENCE - self.drafts], ANCHORS)
        return self.loss_behind(anchors, seen)

    def loss_behind(self, anchors: Tensor, seen: Seen) -> Tensor:
        return drafts_loss(self.drafted(seen, anchors), *self.teacher(anchors, seen))

    def teacher(self, anchors: Tensor, seen: Seen) -> tuple[Tensor, Tensor]:
        """Of the drafts behind the anchors: the target's logits [B, A, drafts, V], and the tokens of the text."""
        slots = anchors[..., None] + torch.arange(1, self.drafts + 1)  # where the drafts stand
        return rows_of(seen.logits, slots - 1), seen.tokens.gather(1, slots.flatten(1)).view_as(slots)

    def accepted(self, seen: Seen, first: int, count: int) -> dict[str, Tensor]:
        drafts = self.drafted(seen, torch.arange(first, first + count)[None])[0].argmax(-1)
        truth = seen.tokens[0, first + 1 :].unfold(0, self.drafts, 1)[:count]
        return {f"block of {self.drafts + 1}": run_of(drafts == truth)}


def drafts_loss(logits: Tensor, teacher: Tensor, tokens: Tensor) -> Tensor:
    """The mean over all drafts, [..., drafts, V]; one counts the less, the less likely those before it are drafted."""
    losses, chance = compared(logits, wanted(teacher, teacher.argmax(-1)), tokens)
    share = torch.cat([torch.ones_like(chance[..., :1]), chance[..., :-1].cumprod(-1)], -1)
    return (share * losses).sum() / share.sum()


def unused_token(target: Target, texts: Texts) -> int:
    """A token that no text has, for where a draft is to come."""
    unused = texts["tokens"].flatten().bincount(minlength=len(target.embedding)) == 0
    return int(torch.where(unused, target.embedding.norm(dim=1), math.inf).argmin())


def with_masks(rows: Tensor, length: int, masks: int) -> tuple[Tensor, Tensor]:
    """Rows of masks behind each of some rows [B, A] of texts, all behind the texts' own: positions [B, N], and what
    each of them sees, [B, 1, N, N]."""
    batch, every = rows.shape[0], torch.arange(length)
    behind = (rows[..., None] + torch.arange(1, masks + 1)).flatten(1)
    texts = every.expand(batch, -1)
    last = torch.cat([texts, rows.repeat_interleave(masks, 1)], 1)  # the last row of the text that each sees
    own = torch.arange(behind.shape[1])
    block = (own[:, None] // masks == own // masks) & (own <= own[:, None])
    masked = torch.cat([torch.zeros(length, len(own), dtype=torch.bool), block])
    seen = torch.cat([every <= last[..., None], masked.expand(batch, -1, -1)], -1)
    return torch.cat([texts, behind], 1), seen[:, None]


def drafting_rows(rows: Tensor, length: int, masks: int) -> Tensor:
    """Which of those rows draft: [B, A, 1 + masks]."""
    behind = length + torch.arange(rows.shape[1] * masks).view(1, -1, masks).expand(len(rows), -1, -1)
    return torch.cat([rows[..., None], behind], -1)
