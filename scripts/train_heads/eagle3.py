"""EAGLE-3: one layer that reads its own output, and drafts a chain or a dynamic tree."""

import math
from typing import Any

import torch
from layers import Layer, linear, norm
from losses import compared, wanted
from target import HIDDEN, LLAMA, SIZE, TAPS, VOCABULARY, Seen, Target
from torch import Tensor, nn
from torch.nn import functional

DRAFT_VOCABULARY, UNROLL = 2048, 5
CHAIN, DEPTH, TOP_K, NODES = 4, 5, 8, (24, 32, 48)  # of what is measured: a chain, and dynamic trees


class Eagle3(nn.Module):
    """kept [DRAFT_VOCABULARY]: the tokens that can be drafted, in ascending order."""

    def __init__(self, target: Target, kept: Tensor) -> None:
        super().__init__()
        self.target, self.kept = [target], kept  # in a list: no parameters of this module
        self.fc, self.midlayer, self.norm = linear(len(TAPS) * HIDDEN, HIDDEN), Layer(True), norm(HIDDEN)
        self.lm_head = linear(HIDDEN, DRAFT_VOCABULARY)
        self.lm_head.weight.data = target.embedding[kept].clone()
        self.norm.weight.data = target.model.model.norm.weight.data.clone()
        self.places = torch.full((VOCABULARY,), -1).scatter(0, kept, torch.arange(len(kept)))

    def step(self, x: Tensor, tokens: Tensor, positions: Tensor, given: tuple[Tensor, Tensor, Tensor] | None,
             own: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, tuple[Tensor, Tensor]]:  # fmt: skip
        """One row for each of x [B, N, H]: the features for the next one, and this one's keys and values.

        given: keys, values and mask [B or 1, 1, N, T] of the true rows, None where these are the true rows. own: keys
        and values of each row's ancestors [B, HEADS, N, SIZE], one each.
        """
        layer = self.midlayer
        embedded = functional.embedding(tokens, self.target[0].embedding)
        both = torch.cat([layer.input_layernorm(embedded), layer.hidden_norm(x)], -1)
        q, made = layer.self_attn.queries(both, positions), layer.self_attn.keys(both, positions)
        if given is None:
            given, own = (*made, torch.ones(x.shape[1], x.shape[1]).tril().bool()[None, None]), []
        else:
            own = [*own, made]
        keys, values, mask = given
        scores = [(q @ keys.transpose(2, 3)).masked_fill(~mask, -math.inf)]
        scores += [(q * key).sum(-1, keepdim=True) for key, _ in own]
        shares = (torch.cat(scores, -1).float() / math.sqrt(SIZE)).softmax(-1)
        read = shares[..., : keys.shape[2]] @ values
        for index, (_, value) in enumerate(own):
            read = read + shares[..., keys.shape[2] + index, None] * value
        return layer.finished(x, read), made

    def unrolled(self, seen: Seen, steps: int) -> list[Tensor]:
        """Logits [B, T - steps, Vd] of the rows (f_p, x_{p+1}), and of those that follow given the true tokens."""
        rows = seen.tokens.shape[1] - steps
        x, given, own, found = self.fc(seen.taps[:, :rows]), None, [], []
        for step in range(steps):
            positions = torch.arange(rows)[None] + step
            x, made = self.step(x, seen.tokens[:, 1 + step : 1 + step + rows], positions, given, own)
            if given is None:
                given = (*made, torch.ones(rows, rows).tril().bool()[None, None])
            else:
                own.append(made)
            found.append(self.lm_head(self.norm(x)))
        return found

    def loss(self, seen: Seen, weights: Tensor) -> Tensor:
        best, tokens = self.places[seen.logits.argmax(-1)], self.places[seen.tokens]
        goal, reach, total, mass = wanted(seen.logits[..., self.kept], best.clamp(min=0)), torch.ones(()), 0.0, 0.0
        for step, logits in enumerate(self.unrolled(seen, UNROLL)):
            rows = slice(1 + step, 1 + step + logits.shape[1])
            after = tokens[:, 2 + step :][:, : logits.shape[1]]
            after = functional.pad(after, (0, logits.shape[1] - after.shape[1]))
            losses, chance = compared(logits, goal[:, rows], after.clamp(min=0))
            share = reach * weights[:, rows] * (best[:, rows] >= 0)
            total, mass, reach = total + (share * losses).sum(), mass + share.sum(), reach * chance * (after >= 0)
        return total / mass

    def config(self) -> dict[str, Any]:
        aux = {"eagle_aux_hidden_state_layer_ids": TAPS, "use_aux_hidden_state": True}
        return {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "num_hidden_layers": 1,
                "draft_vocab_size": DRAFT_VOCABULARY, "eagle_config": aux, **LLAMA}  # fmt: skip

    def extra(self) -> dict[str, Tensor]:
        return {"d2t": self.kept - torch.arange(len(self.kept)), "t2d": self.places >= 0}

    def accepted(self, seen: Seen, first: int, count: int) -> dict[str, Tensor]:
        """Of the rounds whose bonus is token first, first + 1, ..: how many drafts the target accepts, [count]."""
        truth = seen.tokens[0, first + 1 :].unfold(0, DEPTH, 1)[:count]
        rows = slice(first - 1, first - 1 + count)
        drafts = torch.stack([self.kept[row[0, rows].argmax(-1)] for row in self.unrolled(seen, CHAIN)], -1)
        found = {f"chain of {CHAIN}": (drafts == truth[:, :CHAIN]).long().cumprod(1).sum(1)}
        scores, right = self.grown(seen, torch.arange(first - 1, first - 1 + count), truth)
        for nodes in NODES:
            best = scores.topk(nodes, 1).indices
            found[f"dynamic tree, {nodes} nodes"] = right.gather(1, best).sum(1)
        return found

    def grown(self, seen: Seen, rows: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
        """The nodes considered for a dynamic tree behind each row: their scores, and whether the target accepts."""
        count, k = len(rows), TOP_K
        x = self.fc(seen.taps[:, :-1])
        x, (keys, values) = self.step(x, seen.tokens[:, 1:], torch.arange(x.shape[1])[None], None, [])
        mask = torch.arange(x.shape[1]) <= rows.repeat_interleave(k)[:, None]
        x, own = x[0, rows][:, None], []
        front, front_right, scores, right = torch.zeros(count, 1), torch.ones(count, 1).bool(), [], []
        for depth in range(DEPTH):
            values_, ids = self.lm_head(self.norm(x)).log_softmax(-1).topk(k)
            scores.append((front[..., None] + values_).flatten(1))
            right.append((front_right[..., None] & (self.kept[ids] == truth[:, depth, None, None])).flatten(1))
            front, slots = scores[-1].topk(k, 1)
            front_right, parents = right[-1].gather(1, slots), slots // k
            places = (torch.arange(count)[:, None] * k + parents).flatten()
            own = [(key[:, :, places], value[:, :, places]) for key, value in own]
            x = x.gather(1, parents[..., None].expand(-1, -1, HIDDEN)).flatten(0, 1)[None]
            tokens = self.kept[ids.flatten(1).gather(1, slots)].flatten()[None]
            positions = rows.repeat_interleave(k)[None] + depth + 1
            x, made = self.step(x, tokens, positions, (keys, values, mask[None, None]), own)
            own, x = [*own, made], x[0].unflatten(0, (count, k))
        return torch.cat(scores, 1), torch.cat(right, 1)
