"""A drafting method of another package: what the last tokens were, once more. See docs/drafters.md."""

from collections.abc import Mapping
from typing import Any

from speccompile.drafters.family import Asked, Family, Tried, certain
from speccompile.plan.section import optional

PERIOD = 2


def decide(asked: Asked) -> Mapping[str, Any]:
    """What the recipe does not say. Raises RecipeError for what it should not."""
    period = asked.written.period or PERIOD
    if period > asked.tokens:
        raise asked.origin.refusal(
            "drafter.period", str(period), f"at most {asked.tokens}, the drafts of a round", "lower it, or draft more"
        )
    return {"options": {"period": period}}


FAMILY = Family(
    "echo",
    "the last tokens once more",
    keys=("tokens", "tree", "period"),
    rows=(certain(("chain",), ("exact",)),),
    section={"period": (int | None, optional("a whole number from 1 to 8", PERIOD, ge=1, le=8))},
    decide=decide,
    tried=(Tried("echo-3", {"tokens": 3, "period": 1}),),
)
