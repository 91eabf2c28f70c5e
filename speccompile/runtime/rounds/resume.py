"""Number of tokens of a slot's content that a sequence goes on from."""

from collections.abc import Collection

from speccompile.contract import COMPONENTS
from speccompile.runtime.adapters import adapter_key
from speccompile.runtime.generation import SequenceState
from speccompile.runtime.rounds.draft_controller import DraftController
from speccompile.runtime.rounds.slots import Slot, SlotContent, common_prefix_length


def resume_slot(
    slot: Slot,
    row: SequenceState,
    content: SlotContent,
    drafting: DraftController,
    recurrent: Collection[str],
    *,
    speculative: bool,
) -> int:
    """Set a free slot's lengths to those of its content, and return the number of tokens with which a sequence goes on.

    recurrent: components with recurrent states, which cannot go back: the target's serve only a sequence that begins
    with all tokens, a drafter's are dropped unless all that they have read is kept.
    """
    if (adapter_key(content.adapter), content.source) != (adapter_key(row.adapter), row.source_key):
        return 0
    reuse = min(common_prefix_length(content.tokens, row.identity), len(row) - 1)
    slot.committed_length, slot.drafter_length = len(content.tokens), content.drafter_length
    slot.written = content.written
    target, drafter = COMPONENTS
    if drafter in recurrent and drafting.kept_length(slot, reuse) != slot.drafter_length:
        slot.drafter_length = 0
    if target not in recurrent:
        return reuse
    must_read = speculative and not drafting.traits.catches_up_alone and drafting.kept_length(slot, reuse) < reuse
    return reuse if reuse == len(content.tokens) and not must_read else 0
