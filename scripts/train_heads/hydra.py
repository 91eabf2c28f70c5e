"""Hydra: four heads over the last hidden state, each of which also reads the tokens drafted before its own."""

from typing import Any

import torch
from block import drafts_loss
from head import Head, rows_of, run_of
from target import HIDDEN, VOCABULARY, Seen, Target
from texts import SEQUENCE
from torch import Tensor, nn
from torch.nn import functional

HYDRA_HEADS, HYDRA_LAYERS = 4, 2
ROWS = 24  # rows that are learnt of each text


class Block(nn.Module):
    """R x + SiLU(W x + b), where R is the identity unless something is narrowed."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear, self.res_connection = nn.Linear(width, HIDDEN), nn.Identity()
        if width > HIDDEN:
            self.res_connection = nn.Linear(width, HIDDEN)
            self.res_connection.weight.data = torch.eye(HIDDEN, width)  # the hidden state stands first
            self.res_connection.bias.data.zero_()

    def forward(self, x: Tensor) -> Tensor:
        return self.res_connection(x) + functional.silu(self.linear(x))


class Hydra(Head):
    def __init__(self, target: Target) -> None:
        super().__init__(target)
        more = [HIDDEN] * (HYDRA_LAYERS - 1)
        widths = [[(number + 2) * HIDDEN, *more] for number in range(HYDRA_HEADS)]
        self.hydra_mlp = nn.ModuleList(nn.Sequential(*map(Block, each)) for each in widths)
        self.hydra_lm_head = nn.ModuleList(nn.Linear(HIDDEN, VOCABULARY) for _ in widths)
        for head in self.hydra_lm_head:
            head.weight.data, head.bias.data = target.embedding.data.clone(), torch.zeros(VOCABULARY)

    def logits(self, seen: Seen, rows: Tensor) -> Tensor:
        """[B, A, HEADS, V] of the tokens behind the bonus, whose row is the one after each of these [B, A]."""
        x, found = rows_of(seen.final, rows), []
        embedded = functional.embedding(seen.tokens, self.embedding)
        for number, (mlp, head) in enumerate(zip(self.hydra_mlp, self.hydra_lm_head, strict=True)):
            x = torch.cat([x, rows_of(embedded, rows + 1 + number)], -1)
            found.append(head(mlp(x)))
        return torch.stack(found, 2)

    def loss(self, seen: Seen, weights: Tensor) -> Tensor:
        rows = torch.multinomial(weights[:, : SEQUENCE - HYDRA_HEADS - 1], ROWS)
        drafts = rows[..., None] + 2 + torch.arange(HYDRA_HEADS)
        tokens = seen.tokens.gather(1, drafts.flatten(1)).view_as(drafts)
        return drafts_loss(self.logits(seen, rows), rows_of(seen.logits, drafts - 1), tokens)

    def accepted(self, seen: Seen, first: int, count: int) -> dict[str, Tensor]:
        drafts = self.logits(seen, torch.arange(first - 1, first - 1 + count)[None])[0].argmax(-1)
        truth = seen.tokens[0, first + 1 :].unfold(0, HYDRA_HEADS, 1)[:count]
        return {f"chain of {HYDRA_HEADS}": run_of(drafts == truth)}

    def config(self) -> dict[str, Any]:
        return {"hydra_num_heads": HYDRA_HEADS, "hydra_num_layers": HYDRA_LAYERS, "hydra_head_arch": "mlp",
                "grounded_heads": True, "hidden_state_offset": 0, "hidden_size": HIDDEN, "vocab_size": VOCABULARY,
                "base_model_name_or_path": "demo/target"}  # fmt: skip
