"""A drafting method of another package: see docs/how-to/add-a-drafting-method.md."""

from collections.abc import Mapping
from typing import Any

from speccompile.drafters.method import CompareVariant, DraftingMethod, MethodRequest, greedy_draft_row
from speccompile.plan.section import optional

PERIOD = 2


def decide(asked: MethodRequest) -> Mapping[str, Any]:
    """Return what the recipe does not say. Raises RecipeError for what it should not."""
    period = asked.section.period or PERIOD
    if period > asked.tokens:
        raise asked.origin.refusal(
            "drafter.period", str(period), f"at most {asked.tokens}, the drafts of a round", "lower it, or draft more"
        )
    return {"options": {"period": period}}


METHOD = DraftingMethod(
    "echo",
    "the last tokens once more",
    keys=("tokens", "tree", "period"),
    rows=(greedy_draft_row(("chain",), ("exact",)),),
    section={"period": (int | None, optional("a whole number from 1 to 8", PERIOD, ge=1, le=8))},
    decide=decide,
    compare_variants=(CompareVariant("echo-3", {"tokens": 3, "period": 1}),),
)
