"""DFlash: a few layers that draft a whole block at once, from the token before it and the target's features."""

from typing import Any, Self

import torch
from block import BlockHead, unused_token
from head import Texts
from layers import Layer, linear, norm
from target import HIDDEN, LLAMA, TAPS, Seen, Target
from torch import Tensor, nn
from torch.nn import functional

LAYERS = 3


class DFlash(BlockHead):
    """mask_id: the token that stands where a draft is to come."""

    block, drafts = 8, 7

    def __init__(self, target: Target, mask_id: int) -> None:
        super().__init__(target)
        self.mask_id = mask_id
        self.fc, self.hidden_norm, self.norm = linear(len(TAPS) * HIDDEN, HIDDEN), norm(HIDDEN), norm(HIDDEN)
        self.layers = nn.ModuleList(Layer(normed=True) for _ in range(LAYERS))
        self.norm.weight.data = target.model.model.norm.weight.data.clone()

    @classmethod
    def new(cls, target: Target, texts: Texts) -> Self:
        return cls(target, unused_token(target, texts))

    @classmethod
    def found(cls, target: Target, config: dict[str, Any], tensors: Texts, report: dict[str, Any]) -> Self:
        return cls(target, config.get("dflash_config", config)["mask_token_id"])

    def hidden(self, seen: Seen, anchors: Tensor) -> Tensor:
        """[B, A, block, H] of the slots of the blocks that begin with these anchors."""
        batch, length = seen.tokens.shape
        context, every = self.hidden_norm(self.fc(seen.taps)), torch.arange(length)
        positions = (anchors[..., None] + torch.arange(self.block)).flatten(1)
        block = torch.full((*anchors.shape, self.block), self.mask_id)
        block[..., 0] = seen.tokens.gather(1, anchors)
        x = functional.embedding(block.flatten(1), self.embedding)
        own = torch.arange(x.shape[1]) // self.block
        before = every < anchors.repeat_interleave(self.block, 1)[..., None]
        mask = torch.cat([before, (own[:, None] == own).expand(batch, -1, -1)], -1)[:, None]
        for layer in self.layers:
            normed, read = layer.input_layernorm(x), layer.self_attn
            pairs = zip(read.keys(context, every[None]), read.keys(normed, positions), strict=True)
            keys, values = (torch.cat(pair, 2) for pair in pairs)
            queries = read.queries(normed, positions)
            x = layer.finished(x, functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask))
        return self.norm(x).unflatten(1, (*anchors.shape[1:], self.block))

    def drafted(self, seen: Seen, anchors: Tensor) -> Tensor:
        return functional.linear(self.hidden(seen, anchors)[:, :, -self.drafts :], self.embedding)

    def config(self) -> dict[str, Any]:
        own = {"mask_token_id": self.mask_id, "target_layer_ids": TAPS}
        return {"architectures": ["DFlashDraftModel"], **LLAMA, "model_type": "qwen3", "num_hidden_layers": LAYERS,
                "block_size": self.block, "dflash_config": own, "num_target_layers": 5,
                "layer_types": ["full_attention"] * LAYERS}  # fmt: skip
