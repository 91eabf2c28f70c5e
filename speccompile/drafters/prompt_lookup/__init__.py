"""Prompt lookup: copies from the text (Saxena 2023; LLMA, Yang et al. 2023)."""

from typing import Any, Literal

from speccompile.drafters.method import (
    NO_RUN,
    STATIC_TREE_KINDS,
    CompareVariant,
    DraftingMethod,
    MethodRequest,
    SourceText,
    greedy_draft_row,
)
from speccompile.plan.section import optional


def decide(request: MethodRequest) -> dict[str, Any]:
    """Raise RecipeError for `begin`, and for a tree, where they do not apply; decide nothing else."""
    section, origin = request.section, request.origin
    if section.begin is not None and section.over is None:
        raise origin.refusal(
            "drafter.begin", str(section.begin).lower(), "it only with drafter.over: source",
            "remove drafter.begin, or set drafter.over to source",
        )  # fmt: skip
    if section.over is not None and request.tree.kind != "chain":
        raise origin.refusal(
            "drafter.tree", "a tree with drafter.over: source", "a chain", "give drafter.tokens instead of drafter.tree"
        )
    return {}


METHOD = DraftingMethod(
    "prompt_lookup",
    "copies what followed the last tokens where they stood before",
    ("tokens", "ngram", "tree", "over", "begin"),
    (
        greedy_draft_row(STATIC_TREE_KINDS, ("exact",)),
        greedy_draft_row(STATIC_TREE_KINDS, ("typical", "top_k")),
        greedy_draft_row(("chain",), ("lenience",)),
    ),
    looks_up=True,
    with_images=True,
    aliases=("ngram", "n_gram", "lookup", "pld", "prompt_lookup_decoding"),
    compare_variants=(
        CompareVariant("prompt_lookup-4", {"tokens": 4}),
        CompareVariant("prompt_lookup-10", {"tokens": 10}),
        CompareVariant("prompt_lookup-tree", {"tree": [2, 1, 1, 1]}),
        CompareVariant("prompt_lookup-source-12", {"over": SourceText(), "tokens": 12}),
    ),
    runs=NO_RUN,
    reads_sources=True,
    section={
        "over": (Literal["source"] | None, optional("source, of a target with an encoder", "source")),
        "begin": (bool | None, optional("true or false", "true")),
    },
    decide=decide,
)
