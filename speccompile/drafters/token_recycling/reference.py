"""Reference: Token Recycling's matrix of candidates (section 3 of Luo et al. 2024), in a dictionary."""

from collections.abc import Sequence
from itertools import pairwise

from speccompile.compiler.prove.plain_drafts import PlainDrafter, PlainDrafts, SlotRound
from speccompile.drafters.context import DrafterContext
from speccompile.tree import Tree

Table = dict[int, list[int]]
"""Token -> the tokens that follow it most probably."""


def drafter(context: DrafterContext) -> PlainDrafter:
    """Return the drafter, which keeps one table for all batch slots."""
    table: Table = {}

    def drafts(rounds: Sequence[SlotRound]) -> list[PlainDrafts]:
        table.update(learn(table, rounds, context.drafter.successors))
        return [grow(table, each.known[-1], context.tree) for each in rounds]

    return drafts


def learn(table: Table, rounds: Sequence[SlotRound], ranks: int) -> Table:
    """Return the rows that a round writes: after a token of the text what followed it, the latest first, and then what
    was known; for tokens at rows of logits the target's best. The last of several rows wins."""
    learned: Table = {}
    for text in (each.path[:-1] for each in rounds):
        for token in set(text[:-1]):
            followed = [after for before, after in pairwise(text) if before == token][::-1]
            learned[token] = list(dict.fromkeys([*followed, *table.get(token, [])]))[:ranks]
    return learned | {token: best for each in rounds for token, best in each.rows if token >= 0}


def grow(table: Table, root: int, tree: Tree) -> PlainDrafts:
    """Return the tree over the table: a node of rank r is entry r after its parent's token, up to the last that has
    one."""
    tokens: list[int | None] = [root]
    for parent, rank in zip(tree.parents[1:], tree.ranks[1:], strict=True):
        above = tokens[parent]
        entries = [] if above is None else table.get(above, [])
        tokens.append(entries[rank] if rank < len(entries) else None)
    while tokens[-1] is None:
        tokens.pop()
    return PlainDrafts(tokens[1:])
