"""SuffixDecoding (Oliaro et al. 2024): all earlier occurrences of the text's end vote on the next tokens, in the text
and optionally in earlier answers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from speccompile.compiler.step import ops
from speccompile.compiler.step.draft import Accepted, Drafted, Drafter, State
from speccompile.compiler.step.draft.occurrences import Occurrences, RingMatches, TextMatches
from speccompile.compiler.step.draft.ring import AnswerRing
from speccompile.compiler.step.draft.votes import ONE, SuffixPolicy, SuffixVote, VotedTrie
from speccompile.drafters.context import DrafterContext
from speccompile.tree import ROOT, Tree

OCCURRENCES = 32
"""Maximum number of occurrences that vote: the longest matches, the latest of equal ones."""


def make(context: DrafterContext) -> Drafter:
    """Return the drafter. Its states are the text, and optionally the ring of earlier answers."""
    plan, shape = context.drafter, context.shape
    suffix, tree = plan.suffix, plan.tree
    assert suffix is not None, "the plan decides it"
    policy = SuffixPolicy(suffix.match, suffix.factor, suffix.offset, plan.threshold or 0.0, tree.top_k or 1)
    ring = None
    if suffix.remember:
        # The widest window is the prefill's or a round's; the cache rows beyond max_length hold it.
        slack = shape.rows - shape.max_length + 2
        ring = AnswerRing(shape.batch_size, suffix.remember // shape.batch_size, slack, plan.tokens + 1)
    sizes = Sizes(shape.batch_size, shape.rows, context.vocabulary_size)
    shaped = None if tree.parents is None else Tree(tree.parents)
    if suffix.look_again:
        return Suffix(sizes, VotePerDraft(policy, plan.tokens), shaped, plan.tokens, ring)
    return Suffix(sizes, SingleVote(policy, plan.tokens, tree.depth), shaped, plan.tokens, ring)


class Sizes(NamedTuple):
    """Number of batch slots, maximum tokens of a text, and the target's vocabulary size."""

    batch_size: int
    rows: int
    vocabulary: int


class SingleVote(nn.Module):
    """One vote for all drafts."""

    def __init__(self, policy: SuffixPolicy, tokens: int, depth: int) -> None:
        super().__init__()
        self.match, self.depth = policy.match, depth
        self.count = max(OCCURRENCES, policy.top_k, -(-tokens // depth))  # enough that their trie can hold all drafts
        self.votes = SuffixVote(policy, tokens, depth)

    def forward(self, found: Sequence[Occurrences]) -> VotedTrie:
        return self.votes([each.followed(self.count, self.depth) for each in found])


class VotePerDraft(nn.Module):
    """A vote per draft, among occurrences of the text's end followed by the earlier drafts (ANPD, Ou et al. 2024)."""

    def __init__(self, policy: SuffixPolicy, tokens: int) -> None:
        super().__init__()
        self.match, self.tokens, self.limit = policy.match, tokens, int(policy.threshold * ONE)
        self.budgets = policy.budgets(tokens)
        self.votes = SuffixVote(replace(policy, factor=0.0, offset=1.0, threshold=0.0), 1, 1)

    def forward(self, found: Sequence[Occurrences]) -> VotedTrie:
        tokens, shares, counts = list[Tensor](), list[Tensor](), list[Tensor]()
        for draft in range(self.tokens):
            voted = self.votes([each.followed(OCCURRENCES, 1) for each in found])
            share, is_draft = voted.shares, voted.count[:, None] > 0
            if draft:
                share = share * shares[-1] // ONE
            else:
                matched = voted.matched
                budget = torch.tensor(self.budgets, device=matched.device)[matched][:, None]
            tokens.append(voted.tokens)
            shares.append(share)
            is_draft = is_draft & (share >= self.limit) & (budget > draft)
            counts.append(is_draft.long() if not draft else counts[-1] * is_draft.long())
            found = [each.behind(voted.tokens) for each in found] if draft + 1 < self.tokens else found
        kept = torch.cat(counts, 1)
        parents = torch.arange(self.tokens, device=kept.device) * kept
        return VotedTrie(torch.cat(tokens, 1) * kept, parents, kept.sum(1), matched, torch.cat(shares, 1) * kept)


class Suffix(Drafter):
    """Drafts the winners of the votes. Its states are the text, and optionally the ring of earlier answers."""

    def __init__(
        self,
        sizes: Sizes,
        draft: SingleVote | VotePerDraft,
        shape: Tree | None,
        tokens: int,
        ring: AnswerRing | None = None,
    ) -> None:
        """shape: a chain, or None for a dynamic tree by votes. tokens: maximum number of drafts."""
        super().__init__()
        self.sizes, self.draft, self.shape, self.tokens, self.ring = sizes, draft, shape, tokens, ring
        self.reads_whole_batch = ring is not None

    def states(self) -> list[State]:
        text = State("tokens", torch.int64, (self.sizes.batch_size, self.sizes.rows))
        return [text, *(self.ring.states() if self.ring else [])]

    def forward(self, accepted: Accepted, states: list[Tensor]) -> Drafted:
        text = ops.commit(states[0], accepted.path, accepted.length, 1)  # [B, S]
        end = (accepted.length + accepted.n_path)[:, None]  # [B, 1]: position of the bonus token
        found: list[Occurrences] = [TextMatches(text, end, self.draft.match)]
        kept = list[Tensor]()
        if self.ring:
            kept, following = self.ring.append(states[1:], accepted)
            age = self.ring.age(following)
            found.append(RingMatches.of(kept[0], age, self.sizes.vocabulary, text, end, self.draft.match))
        voted = self.draft(found)
        bonus = text.gather(1, end)
        return Drafted(
            torch.cat([bonus, voted.tokens], 1),
            1 + torch.where(accepted.n_path > 0, voted.count, 0),
            [text, *kept],
            parents=torch.cat([torch.full_like(bonus, ROOT), voted.parents], 1) if self.shape is None else None,
        )
