"""PARD: the demo's drafter, which learns to read mask tokens and so drafts a whole chain in one pass."""

import json
from typing import Any, Self

import torch
from block import BlockHead, drafting_rows, unused_token, with_masks
from head import Texts, rows_of
from target import RECIPES, Seen, Target
from torch import Tensor
from transformers import LlamaForCausalLM

DRAFTER = RECIPES / "demo" / "drafter"
TIED = "lm_head.weight"


class Pard(BlockHead):
    """mask_id: the token that stands where a draft is to come."""

    rate, drafts = 0.5, 6
    files = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")

    def __init__(self, target: Target, mask_id: int) -> None:
        super().__init__(target)
        self.mask_id, self.model = mask_id, LlamaForCausalLM.from_pretrained(DRAFTER)

    @classmethod
    def new(cls, target: Target, texts: Texts) -> Self:
        return cls(target, unused_token(target, texts))

    @classmethod
    def found(cls, target: Target, config: dict[str, Any], tensors: Texts, report: dict[str, Any]) -> Self:
        return cls(target, config["pard_token"])

    def tensors(self) -> Texts:
        return {name: value for name, value in self.model.state_dict().items() if name != TIED}

    def restore(self, tensors: Texts) -> None:
        self.model.load_state_dict(tensors, strict=False)

    def drafted(self, seen: Seen, anchors: Tensor) -> Tensor:
        length, masks = seen.tokens.shape[1], self.drafts - 1
        positions, mask = with_masks(anchors, length, masks)
        behind = torch.full((anchors.shape[0], anchors.shape[1] * masks), self.mask_id)
        tokens = torch.cat([seen.tokens, behind], 1)
        # transformers takes a mask of four dimensions as it is: what is added to the scores.
        hidden = self.model.model(tokens, position_ids=positions, use_cache=False,
                                  attention_mask=torch.where(mask, 0.0, torch.finfo(torch.float).min))  # fmt: skip
        return self.model.lm_head(rows_of(hidden.last_hidden_state, drafting_rows(anchors, length, masks)))

    def config(self) -> dict[str, Any]:
        return json.loads((DRAFTER / "config.json").read_text()) | {"pard_token": self.mask_id}
