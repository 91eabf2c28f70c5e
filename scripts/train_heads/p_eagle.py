"""P-EAGLE: EAGLE-3's layers in one pass, over the text's rows and a row of masks for every draft but the first."""

from typing import Any, Self

import torch
from block import BlockHead, drafting_rows, unused_token, with_masks
from head import Texts, rows_of
from layers import Layer, linear, norm
from target import HIDDEN, LLAMA, TAPS, VOCABULARY, Seen, Target
from torch import Tensor, nn
from torch.nn import functional

LAYERS = 2


class PEagle(BlockHead):
    """mask_id: the token of the rows of masks. All tokens can be drafted."""

    drafts = 6

    def __init__(self, target: Target, mask_id: int) -> None:
        super().__init__(target)
        self.mask_id, self.mask_hidden = mask_id, nn.Parameter(torch.zeros(1, 1, len(TAPS) * HIDDEN))
        self.fc = linear(len(TAPS) * HIDDEN, HIDDEN)
        self.layers = nn.ModuleList(Layer(2 * HIDDEN if not index else HIDDEN) for index in range(LAYERS))
        self.norm, self.lm_head = norm(HIDDEN), linear(HIDDEN, VOCABULARY)
        self.lm_head.weight.data = target.embedding.data.clone()
        self.norm.weight.data = target.model.model.norm.weight.data.clone()
        nn.init.normal_(self.mask_hidden)

    @classmethod
    def new(cls, target: Target, texts: Texts) -> Self:
        return cls(target, unused_token(target, texts))

    @classmethod
    def found(cls, target: Target, config: dict[str, Any], tensors: Texts, report: dict[str, Any]) -> Self:
        return cls(target, config["mask_token_id"])

    def drafted(self, seen: Seen, anchors: Tensor) -> Tensor:
        """The row before an anchor has the anchor's token beside it, and drafts first."""
        rows, length, masks = anchors - 1, seen.tokens.shape[1] - 1, self.drafts - 1
        positions, mask = with_masks(rows, length, masks)
        batch, count = rows.shape[0], rows.shape[1] * masks
        tokens = torch.cat([seen.tokens[:, 1:], torch.full((batch, count), self.mask_id)], 1)
        x = self.fc(torch.cat([seen.taps[:, :length], self.mask_hidden.expand(batch, count, -1)], 1))
        embedded = functional.embedding(tokens, self.embedding)
        for layer in self.layers:
            if layer is self.layers[0]:
                read = torch.cat([layer.input_layernorm(embedded), layer.hidden_norm(x)], -1)
            else:
                read = layer.input_layernorm(x)
            x = layer.over(x, read, positions, mask)
        return self.lm_head(self.norm(rows_of(x, drafting_rows(rows, length, masks))))

    def config(self) -> dict[str, Any]:
        aux = {"eagle_aux_hidden_state_layer_ids": TAPS, "use_aux_hidden_state": True}
        return {"architectures": ["PEagleDraftModel"], "model_type": "llama", "num_hidden_layers": LAYERS,
                "draft_vocab_size": VOCABULARY, "eagle_config": aux, "mask_token_id": self.mask_id,
                "norm_before_residual": False, **LLAMA}  # fmt: skip
