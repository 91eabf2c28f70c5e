"""Reference: an iteration of Jacobi (algorithm 2 of Santilli et al. 2023), in lists."""

from collections.abc import Sequence

from speccompile.compiler.prove.plain_drafts import PlainDrafter, PlainDrafts, SlotRound
from speccompile.drafters.context import DrafterContext


def drafter(context: DrafterContext) -> PlainDrafter:
    """Return the drafter, which keeps nothing."""

    def drafts(rounds: Sequence[SlotRound]) -> list[PlainDrafts]:
        return [iterate(each, context.tree.drafts) for each in rounds]

    return drafts


def iterate(slot: SlotRound, count: int) -> PlainDrafts:
    """Return what the target said after the refused drafts; its last word is repeated up to `count` drafts."""
    said = [best[0] for token, best in slot.rows if token >= 0]
    if not said:
        return PlainDrafts([])
    accepted = len(slot.path) - 1  # rows up to the one that gave the bonus token
    drafts = [*said[accepted:], *[said[-1]] * count]
    return PlainDrafts(drafts[:count])
