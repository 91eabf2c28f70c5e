"""Decide the plan of drafter.kind suffix from its keys: matches, number of drafts, and persistent answers."""

from collections.abc import Mapping
from typing import Any

from speccompile.drafters.method import MethodRequest
from speccompile.plan.plan import SuffixPlan
from speccompile.plan.recipe_source import RecipeSource

MATCH = 8
"""Default length of the longest suffix. On the demo, 16 and 32 accept no more, and every token costs a pass over the
text."""
FACTOR, OFFSET = 1.0, 0.0
"""SuffixDecoding's values (Oliaro et al. 2024), defaults if the recipe has one of both."""
LEAST_LANE = 64
"""Minimum number of tokens of the ring per batch slot: fewer do not hold an answer."""


def decide(request: MethodRequest) -> Mapping[str, Any]:
    """Return the field `suffix` of the plan. Raise RecipeError for invalid combinations of keys, or with the batch."""
    written, origin, is_chain = request.section, request.origin, request.tree.kind == "chain"
    look_again = bool(written.look_again)
    if look_again and not is_chain:
        hint = "remove drafter.look_again, or set drafter.tree to chain"
        raise origin.refusal("drafter.look_again", "true beside a tree", "it with a chain alone", hint)
    factor, offset = 0.0, float(request.tokens)  # no other limit
    if written.factor is not None or written.offset is not None:
        factor = FACTOR if written.factor is None else written.factor
        offset = OFFSET if written.offset is None else written.offset
    match = _decide_match(written, origin)
    if factor * match + offset < 1:
        key = "offset" if written.factor is None else "factor"
        received = f"{factor} tokens for each of a match and {offset} more, which drafts nothing"
        raise origin.refusal(f"drafter.{key}", received, f"one token or more for a match of {match}", f"raise {key}")
    _check_ring(written.remember or 0, request)
    return {"suffix": SuffixPlan(match, factor, offset, look_again, written.remember or 0)}


def _decide_match(written: Any, origin: RecipeSource) -> int:
    match: int | list[int] = written.match or MATCH
    if isinstance(match, list):
        expected = "the most tokens alone: any number of them is a match here"
        raise origin.refusal("drafter.match", str(match), expected, f"set it to {match[1]}")
    return match


def _check_ring(remember: int, request: MethodRequest) -> None:
    origin, batch_size = request.origin, request.batch_size
    if remember and request.method != "exact":
        received = f"{remember}, beside verify.method {request.method}"
        expected = "nothing there: what that accepts depends on the drafts, and would on all earlier answers"
        raise origin.refusal("drafter.remember", received, expected, "remove it, or set verify.method to exact")
    if remember and remember // batch_size < LEAST_LANE:
        expected = f"{batch_size * LEAST_LANE} tokens or more for the {batch_size} rows of cache.batch_size"
        raise origin.refusal("drafter.remember", str(remember), expected, "raise it, or lower cache.batch_size")
