"""DSpark's head: DFlash's block, a correction by the previous draft (Markov head), and a confidence for each draft
(confidence head)."""

import torch
from torch import Tensor, nn

from speccompile.compiler.step.decoder import CacheShape
from speccompile.compiler.step.draft import Drafter
from speccompile.compiler.step.draft.block import BlockReading, Slots, of_parents
from speccompile.compiler.step.draft.network import DraftRound
from speccompile.drafters.context import DrafterContext, token_by_token
from speccompile.drafters.dflash.drafter import DFlashReader
from speccompile.drafters.weights import TargetEmbeddings, load_head
from speccompile.plan.head import HeadPlan


def make(context: DrafterContext) -> Drafter:
    """Return the drafter of the planned drafts from one pass. A chain ends before a draft with a confidence below the
    threshold; without a threshold it never ends early, as in DeepSpec: a compiled window costs the same either way."""
    drafter = context.drafter
    reader = DSparkReader(context.head, context.shape, context.ends(), drafter.tree.depth)
    return token_by_token(context, load_head(reader, context.head), drafter.threshold)


class MarkovHead(nn.Module):
    """Correction of a block position's logits by the previous token: w2 z, where z is its row e of w1 (vanilla),
    sigmoid(gate) * e (gated), or the output of a recurrent cell over the drafts so far (rnn)."""

    def __init__(self, vocabulary: int, size: int, rank: int, width: int, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.markov_w1, self.markov_w2 = nn.Embedding(vocabulary, rank), nn.Linear(rank, size, bias=False)
        if kind == "gated":
            self.gate_proj = nn.Linear(width + rank, rank)
        if kind == "rnn":
            self.joint_proj = nn.Linear(2 * rank + width, 3 * rank)

    def forward(self, embedding: Tensor, hidden: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return the correction [B, T, V] and the new memory of e [B, T, r], hidden [B, T, h] and the previous memory
        [B, T, r]."""
        if self.kind == "vanilla":
            return self.markov_w2(embedding), None
        if self.kind == "gated":
            gate = torch.sigmoid(self.gate_proj(torch.cat([hidden, embedding], -1)))
            return self.markov_w2(gate * embedding), None
        memory = torch.zeros_like(embedding) if memory is None else memory
        gate, candidate, output = self.joint_proj(torch.cat([memory, embedding, hidden], -1)).chunk(3, -1)
        gate = torch.sigmoid(gate)
        return self.markov_w2(torch.tanh(output)), gate * memory + (1 - gate) * torch.tanh(candidate)


class ConfidenceHead(nn.Module):
    """Logit of the probability that the draft of a block position is accepted."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.proj = nn.Linear(width, 1)

    def forward(self, read: Tensor) -> Tensor:
        return self.proj(read).squeeze(-1)


class DSparkReader(DFlashReader):
    """DFlash with a Markov head and a confidence head, both optional."""

    def __init__(self, head: HeadPlan, shape: CacheShape, ends: TargetEmbeddings, drafts: int) -> None:
        super().__init__(head, shape, ends, drafts)
        layers, said = head.layers, head.switches
        assert layers is not None, "DSpark has layers"
        rank, width = int(said["markov_rank"] or 0), layers.hidden_size
        self.markov_head = (
            MarkovHead(head.vocabulary_size, self.size, rank, width, str(said["markov_head_type"])) if rank else None
        )
        self.with_markov = bool(said["confidence_head_with_markov"])
        self.confidence_head = (
            ConfidenceHead(width + (rank if self.with_markov else 0)) if said["confidence_head"] else None
        )

    def slots(self, hidden: Tensor) -> "DSparkSlots":
        return DSparkSlots(self, hidden)

    def confidence(self, reading: DraftRound, logits: Tensor) -> Tensor:
        """Return the confidence of the last block position. It does not depend on the token sampled there."""
        assert isinstance(reading, BlockReading)
        assert isinstance(reading.slots, DSparkSlots)
        if self.confidence_head is None:
            return super().confidence(reading, logits)
        return torch.sigmoid(self.confidence_head(reading.slots.confidence_inputs()))


class DSparkSlots(Slots):
    """Block positions in turn, each corrected by the previous token."""

    memory: Tensor | None = None

    def __init__(self, reader: DSparkReader, hidden: Tensor) -> None:
        super().__init__(reader, hidden)
        self.head, self.with_markov = reader.markov_head, reader.with_markov

    def after(self, slot: int, before: Tensor, parents: Tensor | None = None) -> Tensor:
        logits, head = super().after(slot, before), self.head
        self.slot, self.embedding = slot, None if head is None else head.markov_w1(before)
        if head is None:
            return logits
        hidden = self.hidden[:, slot : slot + 1].expand(-1, before.shape[1], -1)
        added, self.memory = head(self.embedding, hidden, of_parents(self.memory, parents))
        return logits + added

    def confidence_inputs(self) -> Tensor:
        """Return the confidence head's input at the last block position: hidden float32 [B, 1, h], concatenated with
        the Markov head's row if `with_markov`."""
        read = self.hidden[:, self.slot : self.slot + 1]
        if not self.with_markov:
            return read
        assert self.embedding is not None, "a Markov head is there, as the plan has checked"
        return torch.cat([read, self.embedding], -1)
