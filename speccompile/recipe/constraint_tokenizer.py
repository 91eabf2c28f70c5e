"""Refuse constraints over a tokenizer whose tokens have no known bytes."""

import json
from collections.abc import Iterator
from typing import Any

from speccompile.compiler.checkpoints.facts import TOKENIZER
from speccompile.plan.plan import ModelPlan
from speccompile.recipe.schema import Recipe

SPELLING = ("ByteLevel", "ByteFallback")
"""Steps of a decoder that say which bytes a token has: grammars are over bytes."""


def check_constraints(recipe: Recipe, target: ModelPlan) -> None:
    """Raise RecipeError for constraints that no request could use: the decoder of the target's tokenizer spells no
    bytes."""
    file = target.folder / TOKENIZER
    if not recipe.constraints or not file.is_file():
        return
    try:
        decoder = json.loads(file.read_text(encoding="utf-8"))["decoder"]
    except (OSError, ValueError, LookupError, TypeError):  # refused where the tokenizer is read
        return
    steps = list(_steps(decoder))
    if not any(step in SPELLING for step in steps):
        received = f"true for '{target.reference}', whose tokenizer has the decoder {', '.join(steps) or 'none'}"
        raise recipe.origin.refusal(
            "constraints", received, f"a decoder with the step {' or '.join(SPELLING)}",
            "remove constraints, or give the target a tokenizer with one of these steps",
        )  # fmt: skip


def _steps(decoder: Any) -> Iterator[str]:
    """Yield the types of a decoder's steps."""
    if isinstance(decoder, dict):
        several = decoder.get("decoders")
        if not isinstance(several, list):
            yield str(decoder.get("type"))
        for each in several if isinstance(several, list) else ():
            yield from _steps(each)
