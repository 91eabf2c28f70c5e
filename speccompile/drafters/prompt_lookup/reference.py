"""Reference: the longest match of the text's end, by comparing token after token, and a copy of what followed.

It is the rule of transformers' `PromptLookupCandidateGenerator` where a match is unique. Of several matches of one
length that takes the first, and this the latest; and where a match is so near to the end that its copy reaches it, that
ends, and this goes on with the tokens that it has copied.
"""

from collections.abc import Sequence

from speccompile.bundle.sources import SOURCE
from speccompile.compiler.prove.lookups import Lookup
from speccompile.compiler.prove.plain_drafts import PlainDrafter, PlainDrafts, SlotRound
from speccompile.drafters.context import DrafterContext


def drafter(context: DrafterContext) -> PlainDrafter:
    """Return the drafter, which keeps nothing beside the text."""
    plan = context.drafter
    ngram, is_over_source = plan.ngram or 0, plan.options.get("over") == SOURCE and context.shape.source

    def drafts(rounds: Sequence[SlotRound]) -> list[PlainDrafts]:
        if is_over_source:
            begin = plan.options.get("begin") is not False
            return [PlainDrafts(copy_source(each, context.tree.drafts, ngram, begin=begin)) for each in rounds]
        return [PlainDrafts(Lookup(context.tree, ngram).find(each.known)[0]) for each in rounds]

    return drafts


def copy_source(slot: SlotRound, count: int, ngram: int, *, begin: bool) -> list[int]:
    """Return what followed the longest match of the answer's end in the source, nearest to where the answer has come,
    or else in the answer, at the latest place. begin: whether an answer without a match begins as its source does."""
    text, source = slot.known, slot.source
    aligned = len(text) - 2  # an answer begins with one token that is no part of it
    copied = list[tuple[int, int, int, int]]()  # match length, is of the source, rank, place
    for place in range(len(source) - 1):
        near = -2 * abs(place - aligned) - int(place > aligned)
        copied.append((match_length(source[: place + 1], text, ngram), 1, near, place))
    for place in range(len(text) - 1):
        copied.append((match_length(text[: place + 1], text, ngram), 0, place, place))
    matched, is_of_source, _, place = max(copied, default=(0, 0, 0, 0))
    if not matched and begin and slot.start == 0 and aligned + 1 < len(source):
        matched, is_of_source, place = 1, 1, aligned
    if not matched:
        return []
    if is_of_source:
        return [source[min(place + 1 + ahead, len(source) - 1)] for ahead in range(count)]
    longer = list(text)
    for _ in range(count):
        longer.append(longer[len(longer) - (len(text) - 1 - place)])
    return longer[len(text) :]


def match_length(before: Sequence[int], text: Sequence[int], most: int) -> int:
    """Return the number of tokens, at most `most`, with which both end."""
    size = 0
    while size < min(most, len(before), len(text)) and before[-1 - size] == text[-1 - size]:
        size += 1
    return size
