"""DFlash's head (Chen et al. 2026) and DFlash2's, which scores candidates by the previous draft."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from speccompile.compiler.step.decoder import CacheShape
from speccompile.compiler.step.draft import Drafter
from speccompile.compiler.step.draft.block import Block, BlockReader, Slots
from speccompile.compiler.step.draft.layers import Layer
from speccompile.drafters.context import DrafterContext, token_by_token
from speccompile.drafters.dflash.convolved import ConvolvedLayer
from speccompile.drafters.dflash.reading import first_slot
from speccompile.drafters.weights import TargetEmbeddings, draft_vocabulary, load_head
from speccompile.plan.head import HeadPlan


def make(context: DrafterContext) -> Drafter:
    """Return the drafter of the planned drafts from one pass."""
    selects = "selector_top_k" in context.head.switches
    reader = (SelectingReader if selects else DFlashReader)(
        context.head, context.shape, context.ends(), context.drafter.tree.depth
    )
    return token_by_token(context, load_head(reader, context.head))


class DFlashReader(BlockReader):
    """A block of the bonus token and mask tokens, with the target's embedding and output head, or those of the drafter
    if it has an embedding, output matrix or mask embedding."""

    def __init__(
        self, head: HeadPlan, shape: CacheShape, ends: TargetEmbeddings, drafts: int, stack: Iterable[Layer] = ()
    ) -> None:
        layers, said = head.layers, head.switches
        assert layers is not None, "DFlash has layers"
        block = Block(
            int(said["block_size"] or 0), first_slot(said), drafts, bool(said["causal"]), bool(said["causal_sliding"]),
            bool(said["window_from_anchor"]),
        )  # fmt: skip
        stack = stack or [Layer(layers, index) for index in range(layers.count)]
        super().__init__(layers, shape, block, len(head.taps) * head.hidden_size, stack)
        self.taps, self.vocabulary, self.size = head.taps, draft_vocabulary(head), head.draft_vocabulary_size
        self.scale, self.multiplier = float(said["input_embedding_scale"] or 0), float(said["output_multiplier"] or 0)
        self.softcap = float(said["final_logit_softcapping"] or 0)
        masks = torch.full((1, block.size - 1), int(said["mask_token_id"] or 0))
        self.register_buffer("masks", masks, persistent=False)
        self.mask_embedding = (
            nn.Parameter(torch.zeros(layers.hidden_size)) if "mask_embedding" in head.tensors else None
        )
        has_table, has_head = (f"{name}.weight" in head.tensors for name in ("embed_tokens", "lm_head"))
        self.embed_tokens = nn.Embedding(head.vocabulary_size, layers.hidden_size) if has_table else ends.embed
        self.lm_head = nn.Linear(layers.hidden_size, self.size, bias=False) if has_head else ends.head

    def embed(self, bonus: Tensor) -> Tensor:
        batch = bonus.shape[0]
        if self.mask_embedding is None:
            x = self.embed_tokens(torch.cat([bonus, self.masks.expand(batch, -1)], 1))
        else:
            masks = self.mask_embedding.expand(batch, self.block.size - 1, -1)
            x = torch.cat([self.embed_tokens(bonus), masks], 1)
        return x if self.scale == 1 else x * self.scale

    def logits(self, hidden: Tensor) -> Tensor:
        logits = self.lm_head(hidden)
        logits = logits if self.multiplier == 1 else logits * self.multiplier
        return torch.tanh(logits / self.softcap) * self.softcap if self.softcap > 0 else logits


class Selector(nn.Module):
    """Score of a candidate after a token: <predecessor(before) * projected hidden state, successor(candidate)>."""

    def __init__(self, vocabulary: int, rank: int, width: int) -> None:
        super().__init__()
        self.predecessor_codebook = nn.Embedding(vocabulary, rank)
        self.successor_codebook = nn.Embedding(vocabulary, rank)
        self.hidden_projection = nn.Linear(width, rank, bias=False)

    def forward(self, hidden: Tensor, before: Tensor, candidates: Tensor) -> Tensor:
        """Return scores float32 [B, T, k]: hidden [B, 1, h], before int64 [B, T], candidates int64 [B, 1, k]."""
        context = self.predecessor_codebook(before) * self.hidden_projection(hidden)
        return (self.successor_codebook(candidates) * context[:, :, None]).sum(-1)


class SelectingReader(DFlashReader):
    """DFlash2: convolved layers, and a selector among the most probable tokens of every block position."""

    def __init__(self, head: HeadPlan, shape: CacheShape, ends: TargetEmbeddings, drafts: int) -> None:
        layers, said = head.layers, head.switches
        assert layers is not None, "DFlash2 has layers"
        kernel, group = int(said["conv_kernel_size"] or 0), int(said["conv_group_size"] or 0)
        stack = [ConvolvedLayer(layers, index, kernel, group) for index in range(layers.count)]
        super().__init__(head, shape, ends, drafts, stack)
        self.candidate_selector = Selector(head.vocabulary_size, int(said["selector_rank"] or 0), layers.hidden_size)
        self.size = int(said["selector_top_k"] or 0)  # candidates of a block position

    def slots(self, hidden: Tensor) -> "SelectingSlots":
        return SelectingSlots(self, hidden)


class SelectingSlots(Slots):
    """Block positions whose tokens outside of the candidates have probability zero."""

    def __init__(self, reader: SelectingReader, hidden: Tensor) -> None:
        super().__init__(reader, hidden)
        self.select, self.size = reader.candidate_selector, reader.size

    def after(self, slot: int, before: Tensor, parents: Tensor | None = None) -> Tensor:
        logits = super().after(slot, before)
        best, candidates = logits.topk(self.size, dim=2)
        scores = best + self.select(self.hidden[:, slot : slot + 1], before, candidates)
        if before.shape[1] > 1:
            logits, candidates = logits.expand(-1, before.shape[1], -1), candidates.expand(scores.shape)
        return torch.full_like(logits, -torch.inf).scatter(2, candidates, scores)
