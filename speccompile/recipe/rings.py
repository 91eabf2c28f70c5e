"""Decide whether layers that see a window have rings as caches, and refuse rings that an engine lacks or that are too
small."""

from collections.abc import Iterable
from dataclasses import replace

from speccompile.plan.caches import FULL, RING, SLIDING, CachePlan, ring_size
from speccompile.plan.plan import EnginePlan, ModelPlan
from speccompile.plan.recipe_source import format_value, nearest, one_of
from speccompile.recipe.cache_schema import Cache
from speccompile.recipe.cache_sizes import cached_layers
from speccompile.recipe.schema import Recipe

_KEY, _ROWS = "cache.sliding", "cache.ring_rows"


def decide_rings(
    recipe: Recipe, caches: CachePlan, model: ModelPlan, engines: Iterable[EnginePlan], max_length: int, spare: int
) -> CachePlan:
    """Return the caches with the kind of those of layers that see a window: rings by default where they save memory and
    all engines have them. spare: of `spare_rows`. Raise RecipeError for an unknown word, an engine without rings, a
    model without windows, and a ring that is too small or not smaller than a full cache."""
    asked = recipe.cache or Cache()
    word, rows = asked.sliding, asked.ring_rows
    if word is not None and word not in SLIDING:
        guess = nearest(word, SLIDING)
        hint = f"did you mean '{guess}'?" if guess else f"set {_KEY} to {one_of(SLIDING)}"
        raise recipe.origin.refusal(_KEY, f"{format_value(word)}, which is unknown", one_of(SLIDING), hint)
    if rows is not None and word == FULL:
        expected = f"it only with {_KEY} {RING}"
        raise recipe.origin.refusal(_ROWS, str(rows), expected, f"remove {_ROWS}, or set {_KEY} to {RING}")
    windows = [layer.window for layer in cached_layers(model)]
    least = [ring_size(window, spare) for window in windows if 0 < window < max_length]
    lacking = [engine for engine in engines if (engine.backend, engine.provider) != ("onnxruntime", "cpu")]
    if model.facts.source is not None:  # `decide_source` refuses rings that a recipe asks for
        return caches
    if word == FULL or ((not least or lacking) and word is None and rows is None):
        return caches
    if lacking:
        engine = lacking[0]
        received = f"'{RING}', which the engine '{engine.name}' ({engine.backend} on {engine.provider}) cannot do"
        hint = f"set {_KEY} to {FULL}, or build the engines for GPUs from a recipe of their own"
        raise recipe.origin.refusal(_KEY, received, f"'{FULL}', or engines of onnxruntime on cpu", hint)
    if not least:
        received = f"'{RING}' for '{model.reference}', no layer of which sees fewer than {max_length} tokens, which is "
        expected = f"'{FULL}', or a model with sliding windows"
        raise recipe.origin.refusal(_KEY, f"{received}cache.max_length", expected, f"remove {_KEY} and {_ROWS}")
    if rows is not None and rows < max(least):
        expected = (
            f"{max(least)} or more: a window of {max(least) - spare} tokens, and {spare} for the widest run, which is "
            "a chunk of a prompt or a round's drafts, and for what the drafter looks ahead"
        )
        hint = f"set {_ROWS} to {max(least)}, or lower cache.prefill_chunk or the number of drafts"
        raise recipe.origin.refusal(_ROWS, str(rows), expected, hint)
    return replace(caches, sliding=RING, ring_rows=rows)


def ring_note(caches: CachePlan) -> list[str]:
    """Return a note on what rings cost."""
    if caches.sliding == FULL:
        return []
    return [
        "caches of layers that see a window are rings: a prompt goes on from an earlier text only where it leaves that "
        "text near its end; cache.sliding: full keeps all rows"
    ]
