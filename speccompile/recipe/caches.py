"""Decide the dtypes of stored keys and values, and refuse those that an engine or a drafter lacks."""

from collections.abc import Iterable, Sequence

from speccompile.bundle.caches import caches_in
from speccompile.compiler.checkpoints.states import WITHOUT_ATTENTION
from speccompile.contract import CACHE_DTYPES, FLOAT_CACHE, FP8_CACHE, INT4_VALUES, INT8_CACHE
from speccompile.drafters import DRAFTING_METHODS
from speccompile.drafters.method import OWN
from speccompile.plan.caches import MAX_ACCEPTANCE_LOSS, MAX_DIVERGENCE, CachePlan
from speccompile.plan.plan import DrafterPlan, EnginePlan, ModelPlan, ProvePlan
from speccompile.plan.recipe_source import format_value, nearest, one_of
from speccompile.recipe.cache_schema import Cache, DrafterCache
from speccompile.recipe.schema import Recipe

PLANNED = ("int4",)
"""Dtypes that no version supports yet: the refusal of a recipe that names one says so."""
PAIRS = {
    (FLOAT_CACHE, FLOAT_CACHE): FLOAT_CACHE, (INT8_CACHE, INT8_CACHE): INT8_CACHE, (INT8_CACHE, "int4"): INT4_VALUES,
}  # fmt: skip
"""Dtypes of keys and of values -> the dtype of caches. Keys need their bits more than values do."""
ENGINES: dict[tuple[str, str], tuple[str, ...]] = {
    ("onnxruntime", "cpu"): (INT8_CACHE, INT4_VALUES), ("tensorrt_rtx", "cuda"): (INT8_CACHE, FP8_CACHE),
    ("tensorrt", "cuda"): (INT8_CACHE, FP8_CACHE),
}  # fmt: skip
"""Backend and provider of an engine -> dtypes of the target's caches that it has beside floats."""
FP8_CAPABILITY = (8, 9)
"""Least compute capability of GPUs with fp8."""
QUANTIZED_OWN = ("model", "models")
"""Kinds whose own caches may be quantized: language models, which the proof compares with transformers."""


def decide_caches(recipe: Recipe, model: ModelPlan, drafter: DrafterPlan, engines: Iterable[EnginePlan]) -> CachePlan:
    """Return the caches' dtypes, float by default. model: the target. Raise RecipeError for an unknown dtype, an engine
    without quantized caches, models without keys and values, and a drafter whose caches the key does not concern."""
    target, own = recipe.cache or Cache(), recipe.drafter_cache or DrafterCache()
    word = _word(recipe, "cache", target)
    if target.max_divergence is not None and word == FLOAT_CACHE:
        raise recipe.origin.refusal(
            "cache.max_divergence", str(target.max_divergence), "it only with a quantized cache",
            "set cache.dtype to int8, or remove cache.max_divergence",
        )  # fmt: skip
    found = CachePlan(
        word, _drafter(recipe, drafter, word, own), target.max_divergence or MAX_DIVERGENCE,
        target.max_acceptance_loss or MAX_ACCEPTANCE_LOSS,
    )  # fmt: skip
    if target.max_acceptance_loss is not None and (found.target, found.drafter) == (FLOAT_CACHE, FLOAT_CACHE):
        raise recipe.origin.refusal(
            "cache.max_acceptance_loss", str(target.max_acceptance_loss), "it only with a quantized cache",
            "set cache.dtype or drafter_cache.dtype to int8, or remove cache.max_acceptance_loss",
        )  # fmt: skip
    for section, written, dtype, models in (
        ("cache", target, found.target, [model]), ("drafter_cache", own, found.drafter, drafter.models)
    ):  # fmt: skip
        key = cache_key(section, written)
        if dtype != FLOAT_CACHE:
            _check_engines(recipe, key, dtype, engines, own=section == "drafter_cache" and not _reads_target(drafter))
            _check_attention(recipe, key, dtype, models)
    return found


def cache_notes(caches: CachePlan, prove: ProvePlan, *, has_source: bool) -> list[str]:
    """Return a note if the loss by quantized caches would not be measured. has_source: the target has an encoder, whose
    builds compare no texts."""
    if caches.target == FLOAT_CACHE or prove.prompts or prove.held_out:
        return []
    if has_source:
        return [
            f"a build of a target with an encoder does not say how much worse it predicts with "
            f"{caches_in(caches.target)}, and nothing is held against cache.max_divergence: compare answers to your "
            "own sources with those of a bundle with float caches"
        ]
    return [
        f"the build has no texts on which it could compare {caches_in(caches.target)} with float caches, so it will "
        "not say how much worse the target predicts with them, and cache.max_divergence is not checked: set "
        "prove.held_out to a file of texts"
    ]


def cache_key(section: str, written: Cache | DrafterCache | None) -> str:
    """Return the key by which a recipe asks for a quantized cache. section: cache or drafter_cache."""
    return f"{section}.{'dtype' if written is None or written.value is None else 'value'}"


def _word(recipe: Recipe, section: str, written: Cache | DrafterCache) -> str:
    """Return the dtype of caches that a section asks for, by its key `dtype`, or by `key` and `value`."""
    pair = {name: word for name in ("key", "value") if (word := getattr(written, name)) is not None}
    if not pair:
        return _known(recipe, f"{section}.dtype", written.dtype)
    name, word = next(reversed(pair.items()))
    if written.dtype is not None or len(pair) == 1:
        received = f"'{word}' {'beside' if written.dtype is not None else 'without'} {section}."
        received += "dtype" if written.dtype is not None else "key" if name == "value" else "value"
        expected = f"{section}.dtype, or {section}.key and {section}.value"
        raise recipe.origin.refusal(f"{section}.{name}", received, expected, "write both, or only the dtype of both")
    if (found := PAIRS.get((pair["key"], pair["value"]))) is None:
        raise recipe.origin.refusal(
            f"{section}.value", f"'{word}' with {section}.key '{pair['key']}'",
            "float with float, int8 with int8, or keys in int8 with values in int4",
            f"set {section}.key to int8: keys lose more than values in 4 bits",
        )  # fmt: skip
    return found


def _known(recipe: Recipe, key: str, word: str | None) -> str:
    if word is None or word in CACHE_DTYPES:
        return word or FLOAT_CACHE
    if word in PLANNED:
        received, hint = (
            f"{format_value(word)}, which is not available in this version",
            f"set {key} to {one_of(CACHE_DTYPES)}",
        )
    else:
        guess = nearest(word, CACHE_DTYPES)
        received = f"{format_value(word)}, which is unknown"
        hint = f"did you mean '{guess}'?" if guess else f"set {key} to {one_of(CACHE_DTYPES)}"
    raise recipe.origin.refusal(key, received, one_of(CACHE_DTYPES), hint)


def _drafter(recipe: Recipe, drafter: DrafterPlan, target: str, written: DrafterCache) -> str:
    key, method = cache_key("drafter_cache", written), DRAFTING_METHODS[drafter.kind]
    word = _word(recipe, "drafter_cache", written)
    if _reads_target(drafter):
        if (written.dtype or written.value) and word != target:
            expected = f"'{target}', the target's: drafter.kind {drafter.kind} reads the target's caches"
            raise recipe.origin.refusal(key, f"'{word}'", expected, f"remove {key}; set cache.dtype for both")
        return target
    if word != FLOAT_CACHE and (method.weights != OWN or drafter.kind not in QUANTIZED_OWN):
        received = f"'{word}' with drafter.kind {drafter.kind}"
        expected = f"'{FLOAT_CACHE}': caches of drafter.kind {one_of(QUANTIZED_OWN)} alone can be quantized"
        raise recipe.origin.refusal(key, received, expected, f"remove {key}: cache.dtype concerns the target's alone")
    return word


def _reads_target(drafter: DrafterPlan) -> bool:
    """Return whether a drafter reads the caches of the target."""
    return DRAFTING_METHODS[drafter.kind].reads_target_cache or drafter.layers is not None


def _check_engines(recipe: Recipe, key: str, dtype: str, engines: Iterable[EnginePlan], *, own: bool) -> None:
    """Raise RecipeError for an engine that has no such caches. own: the caches are a drafter's, which TensorRT has in
    floats alone."""
    for engine in engines:
        kind = (engine.backend, engine.provider)
        known = ENGINES.get(kind, ()) if kind == ("onnxruntime", "cpu") or not own else ()
        received = f"'{dtype}', which the engine '{engine.name}' ({engine.backend} on {engine.provider}) cannot do"
        if dtype not in known:
            expected = one_of([word for word in (FLOAT_CACHE, *known) if word in CACHE_DTYPES])
            hint = f"remove {key}, or build engines that differ in this from recipes of their own"
            raise recipe.origin.refusal(key, received, expected, hint)
        if dtype == FP8_CACHE and engine.compute_capability and _version(engine.compute_capability) < FP8_CAPABILITY:
            received = f"'{dtype}' for compute capability {engine.compute_capability}, which has no fp8"
            expected = f"'{INT8_CACHE}', or compute capability {'.'.join(map(str, FP8_CAPABILITY))} and higher"
            raise recipe.origin.refusal(key, received, expected, f"set {key} to {INT8_CACHE}: it loses less")


def _version(capability: str) -> tuple[int, ...]:
    return tuple(map(int, capability.split(".")))


def _check_attention(recipe: Recipe, key: str, dtype: str, models: Sequence[ModelPlan]) -> None:
    """Raise RecipeError if none of these models has keys and values: states stay in float32."""
    if models and all(model.facts.model_type in WITHOUT_ATTENTION for model in models):
        model = models[0]
        received = f"'{dtype}' for '{model.reference}', which has no keys and values: its model type is "
        received += f"{model.facts.model_type}, and carries states, whose size no text changes"
        raise recipe.origin.refusal(key, received, f"'{FLOAT_CACHE}'", f"remove {key}: states stay in float32")
