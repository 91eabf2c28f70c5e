"""Decide the source of a target with an encoder, and refuse what such targets lack."""

from collections.abc import Iterator, Sequence
from itertools import chain

from speccompile.contract import FLOAT_CACHE
from speccompile.drafters import DRAFTING_METHODS
from speccompile.plan.caches import RING, CachePlan
from speccompile.plan.plan import DrafterPlan, EnginePlan, ModelPlan
from speccompile.plan.recipe_source import one_of
from speccompile.plan.sources import SourcePlan
from speccompile.recipe.cache_schema import Cache
from speccompile.recipe.caches import cache_key
from speccompile.recipe.schema import Recipe
from speccompile.recipe.source_schema import Source
from speccompile.recipe.speech import speech_refusals

TENSORRT = ("tensorrt_rtx", "tensorrt")
"""Backends of GPUs whose engines encode sources."""
MAX_LENGTH = 512
"""Default of source.max_length, in tokens."""

Refused = tuple[str, str, str, str]
"""Key, received value, expected value, hint."""


def decide_source(
    recipe: Recipe, target: ModelPlan, draft: DrafterPlan, engines: Sequence[EnginePlan], graphs: str, caches: CachePlan
) -> SourcePlan | None:
    """Return the plan of the source, None for a target without an encoder. Raise RecipeError for a section `source`
    that the target has no use for or no positions for, and for what a target with an encoder cannot have."""
    facts, written = target.facts.source, recipe.source or Source()
    refusals = (_refusals(recipe, target, draft, engines, graphs, caches), speech_refusals(recipe, target, draft))
    for refused in chain(*refusals):
        raise recipe.origin.refusal(*refused)
    if facts is None:
        return None
    limits = [
        (model.facts.source.positions, role)
        for role, model in (("target", target), *(("drafter", model) for model in draft.models))
        if model.facts.source is not None and model.facts.source.positions is not None
    ]
    longest = min((positions for positions, _ in limits), default=None)
    if facts.audio is not None:
        assert facts.positions is not None, "an encoder that hears has a number of rows"
        return SourcePlan(facts.positions, facts)
    if written.max_length is None:
        return SourcePlan(MAX_LENGTH if longest is None else min(MAX_LENGTH, longest), facts)
    for positions, role in limits:
        if written.max_length > positions:
            raise recipe.origin.refusal(
                "source.max_length", str(written.max_length),
                f"at most {positions}, the positions of the encoder of the {role}",
                f"set source.max_length to {positions} or less",
            )  # fmt: skip
    return SourcePlan(written.max_length, facts)


def _refusals(
    recipe: Recipe, target: ModelPlan, draft: DrafterPlan, engines: Sequence[EnginePlan], graphs: str, caches: CachePlan
) -> Iterator[Refused]:
    decoder_only = f"'{target.reference}' has no encoder (its model type is {target.facts.model_type})"
    if target.facts.source is None:
        if recipe.source is not None:
            yield "source", "a section for sources", f"none: {decoder_only}", "remove the section source"
        if draft.options.get("over") is not None:
            yield "drafter.over", "'source'", f"no such key: {decoder_only}", "remove drafter.over"
        for model in draft.models:
            if model.facts.source is not None:
                received = f"'{model.reference}', which has an encoder"
                yield "drafter.model", received, f"a language model: the target {decoder_only}", "give another drafter"
        return
    yield from _drafter_refusals(draft)
    for engine in engines:
        yield from _engine_refusals(recipe, engine, caches)
    given = {
        "graphs": graphs != "separate",
        "cache.sliding": (recipe.cache or Cache()).sliding == RING,
        "cache.ring_rows": recipe.cache is not None and recipe.cache.ring_rows is not None,
        "adapters": recipe.adapters is not None,
        "prefixes": bool(recipe.prefixes),
        "prove.prompts": recipe.prove is not None and recipe.prove.prompts is not None,
        "prove.held_out": recipe.prove is not None and recipe.prove.held_out is not None,
    }
    for key, is_given in given.items():
        if is_given:
            received = f"it for '{target.reference}', which has an encoder"
            yield (
                key,
                received,
                "it for language models alone",
                f"remove {key}" + (", or set graphs to separate" if key == "graphs" else ""),
            )


def _engine_refusals(recipe: Recipe, engine: EnginePlan, caches: CachePlan) -> Iterator[Refused]:
    if (engine.backend, engine.provider) == ("onnxruntime", "cpu"):
        return
    who = f"{engine.backend} on {engine.provider} for a target with an encoder"
    if engine.backend not in TENSORRT:
        yield f"engines.{engine.entry}", who, f"onnxruntime on cpu, or {one_of(TENSORRT)}", "remove the engine"
    written = recipe.cache or Cache()
    if (written.batch_size or 1) != 1:  # a run of the encoder would read the sources of all slots again
        yield "cache.batch_size", f"{written.batch_size} with {who}", "1", "set cache.batch_size to 1"
    if caches.target != FLOAT_CACHE:  # an engine writes new rows of bytes behind those of a text alone
        key = cache_key("cache", recipe.cache)
        yield key, f"'{caches.target}' with {who}", f"'{FLOAT_CACHE}'", f"remove {key}"


def _drafter_refusals(draft: DrafterPlan) -> Iterator[Refused]:
    kinds = [kind for kind, method in DRAFTING_METHODS.items() if method.reads_sources]
    if draft.kind not in kinds:
        received = f"'{draft.kind}' for a target with an encoder"
        yield "drafter.kind", received, one_of(kinds), "set drafter.kind to one of these"
    for key, given in (
        ("drafter.then", draft.cascade is not None and draft.cascade.then is not None),
        ("drafter.gate", draft.cascade is not None and draft.cascade.gate is not None),
        ("drafter.drafter", draft.inner is not None),
        ("drafter.tokenizer", draft.tokenizer is not None),
    ):
        if given:
            yield key, "it for a target with an encoder", "it for language models alone", f"remove {key}"
    if draft.layers is not None and draft.layers.attention != draft.layers.mlp:
        received = "halves of layers of a target with an encoder, whose layers have a third part, for the source"
        yield "drafter.layers", received, "whole layers", "name whole layers, for example `layers: [0, 2]`"
    for model in draft.models:
        if model.facts.source is None:
            received = f"'{model.reference}', which has no encoder"
            yield "drafter.model", received, "an encoder-decoder, as the target is", "give another drafter"
