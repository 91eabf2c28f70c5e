"""Prompt lookup (Saxena 2023; LLMA, Yang et al. 2023): copy the tokens after earlier occurrences of the last tokens."""

import torch
from torch import Tensor

from speccompile.bundle.sources import SOURCE
from speccompile.compiler.step import ops
from speccompile.compiler.step.decoder import CacheShape
from speccompile.compiler.step.draft import Accepted, Drafted, Drafter, State
from speccompile.compiler.step.draft.lookup import Lookup
from speccompile.compiler.step.draft.source_lookup import SourceLookup
from speccompile.drafters.context import DrafterContext
from speccompile.tree import Tree


def make(context: DrafterContext) -> Drafter:
    """Return the drafter, whose only state is the text."""
    ngram = context.drafter.ngram
    assert ngram is not None, "the plan decides it"
    if context.drafter.options.get("over") == SOURCE and context.shape.source:
        begin = context.drafter.options.get("begin") is not False
        return SourceDrafter(context.tree, SourceLookup(context.tree.drafts, ngram, begin=begin), context.shape)
    return PromptLookup(context.tree, ngram, context.shape.batch_size, context.shape.rows)


class PromptLookup(Drafter):
    """Drafts the tokens that a lookup finds in the text, its only state."""

    shape: Tree

    def __init__(self, tree: Tree, ngram: int, batch_size: int, rows: int) -> None:
        super().__init__()
        self.shape, self.tokens = tree, tree.drafts
        self.batch_size, self.rows = batch_size, rows
        self.lookup = Lookup(tree, ngram)

    def states(self) -> list[State]:
        return [State("tokens", torch.int64, (self.batch_size, self.rows))]

    def forward(self, accepted: Accepted, states: list[Tensor]) -> Drafted:
        text = ops.commit(states[0], accepted.path, accepted.length, 1)  # [B, S]
        end = (accepted.length + accepted.n_path)[:, None]  # [B, 1]: position of the bonus token
        looked = self.lookup(text, end)
        n_total = torch.where(looked.match_length > 0, 1 + self.tokens, 1)
        return Drafted(torch.cat([text.gather(1, end), looked.tokens], 1), n_total, [text])


class SourceDrafter(Drafter):
    """Drafts the tokens that a lookup finds in the source or in the answer; its only state is the answer."""

    shape: Tree

    def __init__(self, tree: Tree, lookup: SourceLookup, shape: CacheShape) -> None:
        super().__init__()
        self.shape, self.tokens, self.lookup = tree, tree.drafts, lookup
        self.batch_size, self.rows, self.source_rows = shape.batch_size, shape.rows, shape.source

    def states(self) -> list[State]:
        return [State("tokens", torch.int64, (self.batch_size, self.rows))]

    def forward(self, accepted: Accepted, states: list[Tensor]) -> Drafted:
        assert accepted.source_tokens is not None
        assert accepted.source_length is not None
        text = ops.commit(states[0], accepted.path, accepted.length, 1)  # [B, S]
        end = (accepted.length + accepted.n_path)[:, None]  # [B, 1]: position of the bonus token
        source, is_first = (accepted.source_tokens, accepted.source_length), accepted.length == 0
        looked = self.lookup(text, end, *source, is_first)
        n_total = torch.where((looked.match_length > 0) & (accepted.n_path > 0), 1 + self.tokens, 1)
        return Drafted(torch.cat([text.gather(1, end), looked.tokens], 1), n_total, [text])
