"""DFlash: a few layers that draft a whole block at once, from the token before it and the target's features."""

from typing import Any

import torch
from layers import Layer, linear, norm
from losses import compared, wanted
from target import HIDDEN, LLAMA, TAPS, VOCABULARY, Seen, Target
from texts import SEQUENCE
from torch import Tensor, nn
from torch.nn import functional

BLOCK, LAYERS = 8, 3
ANCHORS = 20  # blocks that are learnt of each text


class DFlash(nn.Module):
    """mask_id: the token that stands where a draft is to come."""

    def __init__(self, target: Target, mask_id: int) -> None:
        super().__init__()
        self.target, self.mask_id = [target], mask_id
        self.fc, self.hidden_norm, self.norm = linear(len(TAPS) * HIDDEN, HIDDEN), norm(HIDDEN), norm(HIDDEN)
        self.layers = nn.ModuleList(Layer(False) for _ in range(LAYERS))
        self.norm.weight.data = target.model.model.norm.weight.data.clone()

    def drafted(self, seen: Seen, anchors: Tensor) -> Tensor:
        """Logits [B, A, BLOCK - 1, V] of the tokens behind each anchor [B, A], whose own features nobody has seen."""
        batch, length = seen.tokens.shape
        context, every = self.hidden_norm(self.fc(seen.taps)), torch.arange(length)
        positions = (anchors[..., None] + torch.arange(BLOCK)).flatten(1)
        block = torch.full((*anchors.shape, BLOCK), self.mask_id)
        block[..., 0] = seen.tokens.gather(1, anchors)
        x = functional.embedding(block.flatten(1), self.target[0].embedding)
        own = torch.arange(x.shape[1]) // BLOCK
        before = every < anchors.repeat_interleave(BLOCK, 1)[..., None]
        mask = torch.cat([before, (own[:, None] == own).expand(batch, -1, -1)], -1)[:, None]
        for layer in self.layers:
            normed, read = layer.input_layernorm(x), layer.self_attn
            pairs = zip(read.keys(context, every[None]), read.keys(normed, positions), strict=True)
            keys, values = (torch.cat(pair, 2) for pair in pairs)
            queries = read.queries(normed, positions)
            x = layer.finished(x, functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask))
        drafts = self.norm(x).unflatten(1, (*anchors.shape[1:], BLOCK))[:, :, 1:]
        return functional.linear(drafts, self.target[0].embedding)

    def loss(self, seen: Seen, weights: Tensor) -> Tensor:
        anchors = 8 + torch.multinomial(weights[:, 8 : SEQUENCE - BLOCK + 1], ANCHORS)
        slots = (anchors[..., None] + torch.arange(1, BLOCK)).flatten(1)  # where the drafts stand
        logits = self.drafted(seen, anchors).flatten(1, 2)
        teacher = seen.logits.gather(1, (slots - 1)[..., None].expand(-1, -1, VOCABULARY))
        losses, chance = compared(logits, wanted(teacher, teacher.argmax(-1)), seen.tokens.gather(1, slots))
        losses, after = losses.view(-1, BLOCK - 1), chance.view(-1, BLOCK - 1)[:, :-1].cumprod(1)
        share = torch.cat([torch.ones(len(after), 1), after], 1)
        return (share * losses).sum() / share.sum()

    def accepted(self, seen: Seen, first: int, count: int) -> dict[str, Tensor]:
        """As Eagle3.accepted."""
        drafts = self.drafted(seen, torch.arange(first, first + count)[None])[0].argmax(-1)
        truth = seen.tokens[0, first + 1 :].unfold(0, BLOCK - 1, 1)[:count]
        return {f"block of {BLOCK}": (drafts == truth).long().cumprod(1).sum(1)}

    def config(self) -> dict[str, Any]:
        own = {"mask_token_id": self.mask_id, "target_layer_ids": TAPS}
        return {"architectures": ["DFlashDraftModel"], **LLAMA, "model_type": "qwen3", "num_hidden_layers": LAYERS,
                "block_size": BLOCK, "dflash_config": own, "num_target_layers": 5,
                "layer_types": ["full_attention"] * LAYERS}  # fmt: skip

    def extra(self) -> dict[str, Tensor]:
        return {}
