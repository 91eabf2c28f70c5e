"""DSpark: DFlash, whose drafts are corrected by the token before each, and which says how sure it is of each."""

from typing import Any

import torch
from block import drafts_loss
from dflash import DFlash
from layers import linear
from target import HIDDEN, VOCABULARY, Seen, Target
from torch import Tensor, nn
from torch.nn import functional

RANK = 64


class DSpark(DFlash):
    """Every slot drafts, the anchor's own as well."""

    block, drafts = 7, 7

    def __init__(self, target: Target, mask_id: int) -> None:
        super().__init__(target, mask_id)
        self.markov_head = nn.ModuleDict(
            {"markov_w1": nn.Embedding(VOCABULARY, RANK), "markov_w2": linear(RANK, VOCABULARY)}
        )
        self.markov_head["markov_w2"].weight.data.zero_()
        self.confidence_head = nn.ModuleDict({"proj": nn.Linear(HIDDEN + RANK, 1)})

    def corrected(self, seen: Seen, anchors: Tensor) -> tuple[Tensor, Tensor]:
        """As `drafted`; and how sure it is of each draft, as logits [B, A, drafts]."""
        hidden = self.hidden(seen, anchors)
        places = anchors[..., None] + torch.arange(self.drafts)
        before = self.markov_head["markov_w1"](seen.tokens.gather(1, places.flatten(1)).view_as(places))
        logits = functional.linear(hidden, self.embedding) + self.markov_head["markov_w2"](before)
        return logits, self.confidence_head["proj"](torch.cat([hidden, before], -1).detach())[..., 0]

    def drafted(self, seen: Seen, anchors: Tensor) -> Tensor:
        return self.corrected(seen, anchors)[0]

    def loss_behind(self, anchors: Tensor, seen: Seen) -> Tensor:
        (logits, sure), (teacher, tokens) = self.corrected(seen, anchors), self.teacher(anchors, seen)
        accepted = torch.minimum(logits.detach().float().softmax(-1), teacher.softmax(-1)).sum(-1)
        confidence = functional.binary_cross_entropy_with_logits(sure.float(), accepted)
        return drafts_loss(logits, teacher, tokens) + confidence

    def config(self) -> dict[str, Any]:
        config = super().config()
        return {**config, **config.pop("dflash_config"), "architectures": ["Qwen3DSparkModel"], "markov_rank": RANK,
                "markov_head_type": "vanilla", "enable_confidence_head": True,
                "confidence_head_with_markov": True}  # fmt: skip
