"""Drafters of EAGLE's kind: one layer that reads its own output, and drafts a chain or a dynamic tree."""

import math
from abc import abstractmethod

import torch
from head import Head, run_of
from layers import Layer
from losses import compared, wanted
from target import HIDDEN, SIZE, VOCABULARY, Seen
from torch import Tensor
from torch.nn import functional

CHAIN, DEPTH, TOP_K, NODES = 4, 5, 8, (24, 32, 48)  # of what is measured: a chain, and dynamic trees


class Recycled(Head):
    """midlayer: the layer. kept: the tokens that can be drafted, ascending; places [V]: where each is, or -1."""

    unroll = 5  # how often it reads its own output while it learns
    midlayer: Layer
    kept: Tensor
    places: Tensor

    def keep(self, kept: Tensor) -> None:
        self.kept, self.places = kept, torch.full((VOCABULARY,), -1).scatter(0, kept, torch.arange(len(kept)))

    @abstractmethod
    def features(self, seen: Seen) -> Tensor:
        """[B, T, H]: what the rows of the text read of the target."""

    @abstractmethod
    def entered(self, x: Tensor, embedded: Tensor) -> tuple[Tensor, Tensor]:
        """Features and the next tokens' embeddings: the layer's residual, and what its attention reads."""

    @abstractmethod
    def logits(self, x: Tensor) -> Tensor:
        """What the layer gave [..., H]: [..., the kept tokens]."""

    def step(self, x: Tensor, tokens: Tensor, positions: Tensor, given: tuple[Tensor, Tensor, Tensor] | None,
             own: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, tuple[Tensor, Tensor]]:  # fmt: skip
        """One row for each of x [B, N, H]: the features for the next one, and this one's keys and values.

        given: keys, values and mask [B or 1, 1, N, T] of the true rows, None where these are the true rows. own: keys
        and values of each row's ancestors [B, HEADS, N, SIZE], one each.
        """
        layer = self.midlayer
        x, read = self.entered(x, functional.embedding(tokens, self.embedding))
        q, made = layer.self_attn.queries(read, positions), layer.self_attn.keys(read, positions)
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
        x, given, own, found = self.features(seen)[:, :rows], None, [], []
        for step in range(steps):
            positions = torch.arange(rows)[None] + step
            x, made = self.step(x, seen.tokens[:, 1 + step : 1 + step + rows], positions, given, own)
            if given is None:
                given = (*made, torch.ones(rows, rows).tril().bool()[None, None])
            else:
                own.append(made)
            found.append(self.logits(x))
        return found

    def loss(self, seen: Seen, weights: Tensor) -> Tensor:
        best, tokens = self.places[seen.logits.argmax(-1)], self.places[seen.tokens]
        goal, reach, total, mass = wanted(seen.logits[..., self.kept], best.clamp(min=0)), torch.ones(()), 0.0, 0.0
        for step, logits in enumerate(self.unrolled(seen, self.unroll)):
            rows = slice(1 + step, 1 + step + logits.shape[1])
            after = tokens[:, 2 + step :][:, : logits.shape[1]]
            after = functional.pad(after, (0, logits.shape[1] - after.shape[1]))
            losses, chance = compared(logits, goal[:, rows], after.clamp(min=0))
            share = reach * weights[:, rows] * (best[:, rows] >= 0)
            total, mass, reach = total + (share * losses).sum(), mass + share.sum(), reach * chance * (after >= 0)
        return total / mass

    def accepted(self, seen: Seen, first: int, count: int) -> dict[str, Tensor]:
        truth = seen.tokens[0, first + 1 :].unfold(0, DEPTH, 1)[:count]
        rows = slice(first - 1, first - 1 + count)
        drafts = torch.stack([self.kept[row[0, rows].argmax(-1)] for row in self.unrolled(seen, CHAIN)], -1)
        found = {f"chain of {CHAIN}": run_of(drafts == truth[:, :CHAIN])}
        scores, right = self.grown(seen, torch.arange(first - 1, first - 1 + count), truth)
        for nodes in NODES:
            best = scores.topk(nodes, 1).indices
            found[f"dynamic tree, {nodes} nodes"] = right.gather(1, best).sum(1)
        return found

    def grown(self, seen: Seen, rows: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
        """The nodes considered for a dynamic tree behind each row: their scores, and whether the target accepts."""
        count, k = len(rows), TOP_K
        x = self.features(seen)[:, :-1]
        x, (keys, values) = self.step(x, seen.tokens[:, 1:], torch.arange(x.shape[1])[None], None, [])
        mask = torch.arange(x.shape[1]) <= rows.repeat_interleave(k)[:, None]
        x, own = x[0, rows][:, None], []
        front, front_right, scores, right = torch.zeros(count, 1), torch.ones(count, 1).bool(), [], []
        for depth in range(DEPTH):
            values_, ids = self.logits(x).log_softmax(-1).topk(k)
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
