"""Medusa: four heads that guess the next tokens independently of each other, and the tree chosen for them."""

from collections import Counter
from typing import Any, Self

import torch
from head import Head, Texts
from layers import linear
from losses import compared, wanted
from target import HIDDEN, VOCABULARY, Seen, Target
from texts import SEQUENCE
from torch import Tensor, nn
from torch.nn import functional

from speccompile.tree import MEDUSA_63

MEDUSA_HEADS, MEDUSA_LAYERS = 4, 3
MEDUSA_ROWS = 16  # rows that are learnt of each text
BEST, NODES = 10, 40  # of the tree: how many of a head's tokens are considered, and how many nodes are chosen


class Block(nn.Module):
    """The layers of one head, which change nothing before they are trained."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(HIDDEN, HIDDEN) for _ in range(MEDUSA_LAYERS))
        for layer in self.layers:
            layer.weight.data.zero_()
            layer.bias.data.zero_()

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + functional.silu(layer(x))
        return x


class Medusa(Head):
    """Heads with one output matrix. paths: the tree, None before it is chosen."""

    def __init__(self, target: Target, paths: list[list[int]] | None = None) -> None:
        super().__init__(target)
        self.blocks, self.lm_head = nn.ModuleList(Block() for _ in range(MEDUSA_HEADS)), linear(HIDDEN, VOCABULARY)
        self.lm_head.weight.data, self.paths = target.embedding.data.clone(), paths

    @classmethod
    def found(cls, target: Target, config: dict[str, Any], tensors: Texts, report: dict[str, Any]) -> Self:
        return cls(target, report["tree"])

    def loss(self, seen: Seen, weights: Tensor) -> Tensor:
        rows = torch.multinomial(weights[:, : SEQUENCE - MEDUSA_HEADS - 1], MEDUSA_ROWS)
        x, total = seen.final.gather(1, rows[..., None].expand(-1, -1, HIDDEN)), 0.0
        for head, block in enumerate(self.blocks):
            teacher = seen.logits.gather(1, (rows + 1 + head)[..., None].expand(-1, -1, VOCABULARY))
            best = teacher.argmax(-1)
            total = total + 0.8**head * compared(self.lm_head(block(x)), wanted(teacher, best), best)[0].mean()
        return total / sum(0.8**head for head in range(MEDUSA_HEADS))

    def ranks(self, seen: Seen, first: int, count: int) -> list[tuple[int, ...]]:
        """What place the target's tokens take among each head's, for the rounds of `accepted`."""
        truth = seen.tokens[:, first + 1 :].unfold(1, MEDUSA_HEADS, 1)[:, :count]
        x, found = seen.final[:, first - 1 : first - 1 + count], []
        for head, block in enumerate(self.blocks):
            logits = self.lm_head(block(x))
            found.append((logits > logits.gather(-1, truth[..., head, None])).sum(-1).flatten())
        return [tuple(row) for row in torch.stack(found, -1).tolist()]

    def choose_tree(self, target: Target, tokens: Tensor) -> list[list[int]]:
        """The paths which the ranks take most often on the texts [N, SEQUENCE], each after its parent and elder."""
        counts: Counter[tuple[int, ...]] = Counter()
        for batch in tokens.split(32):
            for ranks in self.ranks(target.read(batch), 97, SEQUENCE - MEDUSA_HEADS - 98):
                counts.update(ranks[: depth + 1] for depth in range(MEDUSA_HEADS) if max(ranks[: depth + 1]) < BEST)
        chosen: set[tuple[int, ...]] = {()}
        while len(chosen) <= NODES:
            open_ = [path for path in counts if path not in chosen and path[:-1] in chosen
                     and (not path[-1] or (*path[:-1], path[-1] - 1) in chosen)]  # fmt: skip
            chosen.add(max(open_, key=lambda path: (counts[path], path)))
        return [list(path) for path in sorted(chosen - {()}, key=lambda path: (len(path), path))]

    def accepted(self, seen: Seen, first: int, count: int) -> dict[str, Tensor]:
        ranks, found = self.ranks(seen, first, count), {}
        for name, paths in (("tree of its own", self.paths), ("medusa-63", MEDUSA_63.paths())):
            known = {tuple(path) for path in paths}
            found[name] = torch.tensor([sum(row[: d + 1] in known for d in range(MEDUSA_HEADS)) for row in ranks])
        return found

    def config(self) -> dict[str, Any]:
        return {"architectures": ["MedusaModel"], "model_type": "medusa", "hidden_size": HIDDEN,
                "vocab_size": VOCABULARY, "num_heads": MEDUSA_HEADS, "num_hidden_layers": MEDUSA_LAYERS,
                "original_lm_head": True, "medusa_fc_bias": True, "truncated_vocab_size": None,
                "base_model_name_or_path": "demo/target"}  # fmt: skip
