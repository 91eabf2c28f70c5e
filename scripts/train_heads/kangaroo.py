"""Kangaroo: attention over what the target's first layers say of each token, and the target's head."""

from typing import Any

import torch
from head import Head, run_of
from layers import Attention, norm
from losses import compared, wanted
from target import EXIT, HIDDEN, LLAMA, Seen, Target
from torch import Tensor, nn
from torch.nn import functional

DRAFTS, SURE = 6, 0.6  # the published code's: a draft less sure than this is the last one


class Kangaroo(Head):
    def __init__(self, target: Target) -> None:
        super().__init__(target)
        own = {"self_attn": Attention(HIDDEN, False), "input_layernorm": norm(HIDDEN)}
        self.layers, self.norm = nn.ModuleList([nn.ModuleDict(own)]), norm(HIDDEN)
        self.norm.weight.data = target.model.model.norm.weight.data.clone()

    def logits(self, seen: Seen) -> Tensor:
        """[B, T, V]: of the token after each."""
        attention, places = self.layers[0]["self_attn"], torch.arange(seen.exit.shape[1])[None]
        read = self.layers[0]["input_layernorm"](seen.exit)
        keys, values = attention.keys(read, places)
        found = functional.scaled_dot_product_attention(attention.queries(read, places), keys, values, is_causal=True)
        x = seen.exit + attention.o_proj(found.transpose(1, 2).flatten(2))
        return functional.linear(self.norm(x), self.embedding)

    def loss(self, seen: Seen, weights: Tensor) -> Tensor:
        best = seen.logits.argmax(-1)
        losses, _ = compared(self.logits(seen), wanted(seen.logits, best), best)
        return (weights * losses).sum() / weights.sum()

    def accepted(self, seen: Seen, first: int, count: int) -> dict[str, Tensor]:
        sure, drafts = self.logits(seen)[0, first:-1].softmax(-1).max(-1)
        right = (drafts == seen.tokens[0, first + 1 :]).unfold(0, DRAFTS, 1)[:count]
        enough = (sure >= SURE).unfold(0, DRAFTS, 1)[:count]
        made = torch.cat([torch.ones_like(enough[:, :1]), enough[:, :-1]], 1).cumprod(1).bool()
        return {f"chain of {DRAFTS}": run_of(right), f"chain of {DRAFTS}, while {SURE} sure": run_of(right & made)}

    def config(self) -> dict[str, Any]:
        return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 1,
                "exit_layer": EXIT, **LLAMA}  # fmt: skip
