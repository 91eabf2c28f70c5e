"""Decide the dtypes of stored keys and values, and refuse those that an engine or a drafter lacks."""

from collections.abc import Iterable, Sequence

from speccompile.compiler.checkpoints.states import WITHOUT_ATTENTION
from speccompile.contract import CACHE_DTYPES, FLOAT_CACHE
from speccompile.drafters import DRAFTING_METHODS
from speccompile.drafters.method import OWN
from speccompile.plan.caches import MAX_DIVERGENCE, CachePlan
from speccompile.plan.plan import DrafterPlan, EnginePlan, ModelPlan, ProvePlan
from speccompile.plan.recipe_source import nearest, one_of
from speccompile.recipe.cache_schema import Cache, DrafterCache
from speccompile.recipe.schema import Recipe

PLANNED = ("int4", "fp8")
"""Dtypes that a recipe may come to name, and no version has yet."""
QUANTIZED_OWN = ("model", "models")
"""Kinds whose own caches may be quantized: language models, which the proof compares with transformers."""


def decide_caches(recipe: Recipe, model: ModelPlan, drafter: DrafterPlan, engines: Iterable[EnginePlan]) -> CachePlan:
    """Return the caches' dtypes, float by default. model: the target. Raise RecipeError for an unknown dtype, an engine
    without quantized caches, models without keys and values, and a drafter whose caches the key does not concern."""
    target, own = recipe.cache or Cache(), recipe.drafter_cache or DrafterCache()
    word = _known(recipe, "cache.dtype", target.dtype)
    if target.max_divergence is not None and word == FLOAT_CACHE:
        raise recipe.origin.refusal(
            "cache.max_divergence", str(target.max_divergence), "it only with a quantized cache",
            "set cache.dtype to int8, or remove cache.max_divergence",
        )  # fmt: skip
    found = CachePlan(word, _drafter(recipe, drafter, word, own.dtype), target.max_divergence or MAX_DIVERGENCE)
    for key, dtype, models in (
        ("cache.dtype", found.target, [model]), ("drafter_cache.dtype", found.drafter, drafter.models)
    ):  # fmt: skip
        if dtype != FLOAT_CACHE:
            _check_engines(recipe, key, dtype, engines)
            _check_attention(recipe, key, dtype, models)
    return found


def cache_notes(caches: CachePlan, prove: ProvePlan) -> list[str]:
    """Return a note if the loss by quantized caches would not be measured."""
    if caches.target == FLOAT_CACHE or prove.prompts or prove.held_out:
        return []
    return [f"what {caches.target} caches lose is not measured without texts: give prove.held_out"]


def _known(recipe: Recipe, key: str, word: str | None) -> str:
    if word is None or word in CACHE_DTYPES:
        return word or FLOAT_CACHE
    if word in PLANNED:
        received, hint = f"'{word}', which is not available in this version", f"set {key} to {one_of(CACHE_DTYPES)}"
    else:
        guess = nearest(word, CACHE_DTYPES)
        received = f"'{word}', which is unknown"
        hint = f"did you mean '{guess}'?" if guess else f"set {key} to {one_of(CACHE_DTYPES)}"
    raise recipe.origin.refusal(key, received, one_of(CACHE_DTYPES), hint)


def _drafter(recipe: Recipe, drafter: DrafterPlan, target: str, written: str | None) -> str:
    key, method = "drafter_cache.dtype", DRAFTING_METHODS[drafter.kind]
    word = _known(recipe, key, written)
    if method.reads_target_cache or drafter.layers is not None:
        if written is not None and word != target:
            expected = f"'{target}', the target's: drafter.kind {drafter.kind} reads the target's caches"
            raise recipe.origin.refusal(key, f"'{word}'", expected, f"remove {key}; set cache.dtype for both")
        return target
    if word != FLOAT_CACHE and (method.weights != OWN or drafter.kind not in QUANTIZED_OWN):
        received = f"'{word}' with drafter.kind {drafter.kind}"
        expected = f"'{FLOAT_CACHE}': caches of drafter.kind {one_of(QUANTIZED_OWN)} alone can be quantized"
        raise recipe.origin.refusal(key, received, expected, f"remove {key}: cache.dtype concerns the target's alone")
    return word


def _check_engines(recipe: Recipe, key: str, dtype: str, engines: Iterable[EnginePlan]) -> None:
    for engine in engines:
        if (engine.backend, engine.provider) != ("onnxruntime", "cpu"):
            received = f"'{dtype}', which the engine '{engine.name}' ({engine.backend} on {engine.provider}) cannot do"
            hint = f"remove {key}, or build the engines for GPUs from a recipe of their own"
            raise recipe.origin.refusal(key, received, f"'{FLOAT_CACHE}', or engines of onnxruntime on cpu", hint)


def _check_attention(recipe: Recipe, key: str, dtype: str, models: Sequence[ModelPlan]) -> None:
    """Raise RecipeError if none of these models has keys and values: states stay in float32."""
    if models and all(model.facts.model_type in WITHOUT_ATTENTION for model in models):
        model = models[0]
        received = f"'{dtype}' for '{model.reference}', which has no keys and values: its model type is "
        received += f"{model.facts.model_type}, and carries states, whose size no text changes"
        raise recipe.origin.refusal(key, received, f"'{FLOAT_CACHE}'", f"remove {key}: states stay in float32")
