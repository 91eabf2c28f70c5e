"""Refuse what targets that hear lack."""

from collections.abc import Iterator

from speccompile.plan.plan import DrafterPlan, ModelPlan
from speccompile.recipe.schema import Recipe


def hears(target: ModelPlan) -> bool:
    """Return whether a target hears, and writes by rules."""
    return target.facts.source is not None and target.facts.source.audio is not None


def speech_refusals(recipe: Recipe, target: ModelPlan, draft: DrafterPlan) -> Iterator[tuple[str, str, str, str]]:
    """Yield key, received and expected value, and hint, for each key that a target that hears cannot have."""
    own = target.facts.source
    if own is None or own.audio is None:
        return
    who, (mels, frames) = f"'{target.reference}', which hears", (own.audio.mels, own.audio.frames)
    if recipe.source is not None:
        yield "source", f"a section for {who}", "none: the encoder has one length", "remove the section source"
    if draft.options.get("over") is not None:
        yield "drafter.over", f"'source' for {who}", "no such key: a sound has no tokens", "remove drafter.over"
    if recipe.constraints is False:
        yield "constraints", f"false for {who}", "true: its rules need them", "remove constraints"
    for model in draft.models:
        audio = None if model.facts.source is None else model.facts.source.audio
        if audio is None:
            yield "drafter.model", f"'{model.reference}' for {who}", "another that hears", "give another drafter"
        elif (audio.mels, audio.frames) != (mels, frames):
            received = f"'{model.reference}', which hears {audio.mels} mel bands and {audio.frames} frames"
            yield "drafter.model", received, f"{mels} and {frames}", "give another drafter"
