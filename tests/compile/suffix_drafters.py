"""Drafters of kind suffix for tests: small ones, and one run of theirs over a text."""

import torch

from speccompile.compiler.step.draft import Accepted, Drafted
from speccompile.compiler.step.draft.ring import AnswerRing
from speccompile.compiler.step.draft.votes import SuffixPolicy
from speccompile.drafters.suffix.drafter import SingleVote, Sizes, Suffix, VotePerDraft
from speccompile.tree import chain

VOCABULARY, ROWS = 50, 96
UNLIMITED = SuffixPolicy(match=8, factor=0.0, offset=99.0, threshold=0.0)


def suffix_chain(
    tokens: int, policy: SuffixPolicy = UNLIMITED, batch: int = 1, rows: int = ROWS, lane: int = 0, again: bool = False
) -> Suffix:
    """Return a drafter of chains. lane: of the ring, 0 for none."""
    ring = AnswerRing(batch, lane, rows, tokens + 1) if lane else None
    draft = VotePerDraft(policy, tokens) if again else SingleVote(policy, tokens, tokens)
    return Suffix(Sizes(batch, rows, VOCABULARY), draft, chain(tokens), tokens, ring)


def suffix_tree(nodes: int, depth: int, policy: SuffixPolicy, batch: int = 1, lane: int = 0) -> Suffix:
    """Do as `suffix_chain`; policy says how many children a node may have."""
    ring = AnswerRing(batch, lane, ROWS, nodes + 1) if lane else None
    return Suffix(Sizes(batch, ROWS, VOCABULARY), SingleVote(policy, nodes, depth), None, nodes, ring)


def read(drafter: Suffix, text: list[int], states: list[torch.Tensor] | None = None) -> Drafted:
    """Return what it drafts behind a text that it reads at once, and the states."""
    if states is None:
        states = [torch.zeros(state.shape, dtype=state.dtype) for state in drafter.states()]
    counts = torch.tensor([len(text) - 1]), torch.tensor([0])
    with torch.no_grad():
        return drafter(Accepted(torch.tensor([text]), *counts), states)


def drafts(found: Drafted, row: int = 0) -> list[int]:
    """Return those that count."""
    tokens: list[int] = found.window[row, 1 : int(found.n_total[row])].tolist()
    return tokens
