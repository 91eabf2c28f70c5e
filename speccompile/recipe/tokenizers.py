"""Pairs of a target and a drafter whose tokenizers differ: how much they share, and what may be done about it."""

from speccompile.compiler.checkpoints.facts import special_ids
from speccompile.drafters.token_map import MAP, Overlap, Tokenizer, TokenizerPair, overlap_of
from speccompile.errors import CheckpointError
from speccompile.plan.plan import ModelPlan
from speccompile.plan.recipe_source import RecipeSource

KEY = "drafter.tokenizer"
_LOW = 0.5
"""Share of common tokens below which a note says that drafts will be few."""


def tokenizer_pair(target: ModelPlan, drafter: ModelPlan) -> TokenizerPair:
    """Return the tokenizers of a pair."""
    return TokenizerPair(*map(_tokenizer, (target, drafter)))


def _tokenizer(model: ModelPlan) -> Tokenizer:
    facts = model.facts
    return Tokenizer(
        model.folder.absolute(), facts.vocabulary_size, special_ids(model.folder, "bos"), facts.eos_token_ids
    )


def check_mapped_pair(target: ModelPlan, drafter: ModelPlan, origin: RecipeSource) -> Overlap:
    """Check that drafts can be mapped by the bytes of tokens. Return the number of common tokens.

    Raise RecipeError for a model without a tokenizer, for a drafter with recurrent states and for a pair without common
    tokens; CheckpointError for a tokenizer whose tokens do not say their bytes.
    """
    for name, model in (("target", target), ("drafter", drafter)):
        if not model.facts.tokenizer:
            received = f"'{MAP}', but the {name} '{model.reference}' has no tokenizer.json"
            hint = "save its tokenizer beside the model, as transformers writes it: tokenizer.save_pretrained(FOLDER)"
            raise origin.refusal(KEY, received, "the tokenizers of both, whose tokens are compared", hint)
    if drafter.facts.states:
        received = f"'{MAP}' for a drafter with recurrent states ({drafter.facts.states})"
        hint = "choose a drafter without recurrent states, or one with the target's tokenizer"
        raise origin.refusal(KEY, received, "a drafter whose caches have a row for every token", hint)
    overlap = overlap_of(tokenizer_pair(target, drafter))
    if not overlap.common:
        hint = "choose a drafter whose tokenizer shares tokens with the target's"
        raise origin.refusal(KEY, f"'{MAP}' for a pair that has no tokens in common", "some common tokens", hint)
    return overlap


def mapped_note(overlap: Overlap) -> str:
    """Describe the tokens among which drafts are chosen."""
    low = ": few drafts will be accepted" if overlap.common < _LOW * overlap.all else ""
    return f"drafts are mapped between tokenizers: {overlap}{low}"


def describe_overlap(target: ModelPlan, drafter: ModelPlan) -> tuple[str, bool]:
    """Describe the common tokens of a pair for a refusal, and return whether drafts can be mapped."""
    try:
        overlap = overlap_of(tokenizer_pair(target, drafter))
    except CheckpointError as error:
        return str(error), False
    return str(overlap), overlap.common > 0
