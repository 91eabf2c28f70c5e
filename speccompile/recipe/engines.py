"""Decide the engines of the plan: one per compute capability, each checked against the table of capabilities."""

from collections.abc import Iterable, Sequence

from speccompile.drafters import (
    KINDS_READING_TARGET_CACHE,
    KINDS_SHARING_TARGET_WEIGHTS,
    KINDS_WITH_WEIGHTS,
    TARGET_SPECIFIC_KINDS,
)
from speccompile.errors import RecipeError
from speccompile.plan.plan import EnginePlan, PrecisionPlan
from speccompile.plan.precisions import FLOATS, IN_BLOCKS, STORED
from speccompile.plan.recipe_source import RecipeSource, inapplicable_key, one_of
from speccompile.recipe.capabilities import BLOCK_SIZE, SUPPORT_TABLE, SupportRow, filter_rows
from speccompile.recipe.schema import Engine, Precision, Recipe
from speccompile.recipe.stored_precision import StoredPrecision

BACKEND = "onnxruntime"
PRECISION, HALF = "float32", "float16"
FAST = "int8"
"""Default precision of a drafter on a CPU beside a target whose weights are codes. The precision of drafts changes no
token, and in 8 bits almost as many are accepted as in floats: where the target's weights take a quarter of the time,
drafts in floats would take as long as its rounds."""
UNKNOWN = StoredPrecision()
"""Precisions of checkpoints that have not been read."""

Word = tuple[str, str, str]
"""Key of the recipe, dimension of the capabilities, and the value at the key or its default."""


def decide_engines(
    recipe: Recipe, words: Iterable[Word], drafter_kind: str, stored: StoredPrecision = UNKNOWN
) -> tuple[EnginePlan, ...]:
    """Return every engine to build, in the order of the recipe. words: capabilities that all of them must have. stored:
    precisions in which the checkpoints are stored.

    Raise RecipeError for an engine that no row of the capabilities allows, and for duplicate engines or names.
    """
    engines: list[EnginePlan] = []
    for index, written in enumerate(recipe.engines or [Engine()]):
        for engine in _decide(recipe, index, written, list(words), drafter_kind, stored):
            _refuse_duplicate(recipe, f"engines.{index}", engine, engines)
            engines.append(engine)
    common = (recipe.precision or Precision()).block_size
    if common is not None and all(engine.precision.block_size is None for engine in engines):
        raise _needs_int4(recipe, "precision.block_size", common)
    return tuple(engines)


def _decide(
    recipe: Recipe, index: int, written: Engine, words: list[Word], drafter_kind: str, stored: StoredPrecision
) -> list[EnginePlan]:
    key = f"engines.{index}"
    backend = written.backend or BACKEND
    rows = filter_rows(SUPPORT_TABLE, "backend", backend, f"{key}.backend", recipe.origin)
    provider = written.provider or rows[0]["provider"][0]
    rows = filter_rows(rows, "provider", provider, f"{key}.provider", recipe.origin)
    for word_key, dimension, word in words:
        rows = filter_rows(rows, dimension, word, word_key, recipe.origin)
    if written.defer is not None and not rows[0]["compute_capability"]:
        raise recipe.origin.refusal(
            f"{key}.defer", str(written.defer).lower(), f"nothing, because {backend} opens its graphs where it runs",
            f"remove {key}.defer",
        )  # fmt: skip
    capabilities = _capabilities(recipe, key, written, backend, provider, rows)
    built = [row for row in rows if set(capabilities) & {*row["compute_capability"], None}]
    precision = decide_precision(recipe, key, written, drafter_kind, stored, built or rows)
    engines = []
    for capability in capabilities:
        able = rows
        if capability is not None:
            able = filter_rows(able, "compute_capability", capability, f"{key}.compute_capability", recipe.origin)
        for word_key, dimension, word in _precision_words(key, written, precision, drafter_kind):
            shared = dimension == "drafter_precision" and drafter_kind in KINDS_SHARING_TARGET_WEIGHTS
            use = f" for drafter.kind {drafter_kind}, which drafts with the target's weights" if shared else ""
            able = filter_rows(able, dimension, word, word_key, recipe.origin, use)
        name = _name(written, backend, provider, capability, precision, several=len(capabilities) > 1)
        engines.append(EnginePlan(index, name, backend, provider, capability, precision, bool(written.defer)))
    return engines


def _capabilities(
    recipe: Recipe, key: str, written: Engine, backend: str, provider: str, rows: tuple[SupportRow, ...]
) -> list[str] | list[None]:
    known = [word for row in rows for word in row["compute_capability"]]
    given, key = written.compute_capability, f"{key}.compute_capability"
    if given is not None and not known:
        expected = f"nothing, because {backend} on {provider} has none"
        raise recipe.origin.refusal(key, ", ".join(f"'{each}'" for each in given), expected, f"remove {key}")
    if given is None:
        if backend == "tensorrt_rtx":
            hint = f'add the capability of the GPU that will run it, for example `compute_capability: "{known[-3]}"`'
            raise recipe.origin.refusal(key, "nothing", f"one or several of {one_of(known)}", hint)
        return [None]  # TensorRT builds for the GPU that it finds
    for each in given:
        if given.count(each) > 1:
            raise recipe.origin.refusal(key, f"'{each}' twice", "each compute capability once", "remove one of them")
    return given


def decide_precision(
    recipe: Recipe,
    key: str,
    written: Engine,
    drafter_kind: str,
    stored: StoredPrecision,
    rows: Sequence[SupportRow],
) -> PrecisionPlan:
    """Return the precision of the engine at `key`: its own section's, else the recipe's, else the stored one, else
    float32. rows: the engine's capabilities; a stored precision that one of them lacks, or 4 bits on a GPU, is no
    default. A drafter with the target's weights has the target's precision; so has a head by default, if that precision
    is a float dtype. Beside a target in another precision, drafters are in 8 bits by default on a CPU, else in
    16."""
    own, common = written.precision or Precision(), recipe.precision or Precision()
    on_cpu = rows[0]["provider"] == ("cpu",)
    stored = stored if on_cpu else stored.floats
    _check_section(f"{key}.precision", own, drafter_kind, stored, recipe.origin)
    _check_section("precision", common, drafter_kind, stored, recipe.origin)
    target = own.target or common.target or _default("precision", stored.target, rows)
    drafter = own.drafter or common.drafter
    if drafter_kind in KINDS_SHARING_TARGET_WEIGHTS:
        if drafter not in (None, target):
            place = f"{key}.precision.drafter" if own.drafter else "precision.drafter"
            expected = f"'{target}', the target's, because drafter.kind {drafter_kind} drafts with the target's weights"
            raise recipe.origin.refusal(place, f"'{drafter}'", expected, f"remove {place}")
        drafter = target
    elif drafter_kind in TARGET_SPECIFIC_KINDS and drafter is None:
        # A head reads the target's embedding and head: in the same precision they are stored once.
        drafter = target if target in FLOATS else _beside_codes(target, stored, on_cpu=on_cpu)
    elif drafter_kind in KINDS_WITH_WEIGHTS:
        usual = stored.drafter if target in FLOATS else _beside_codes(target, stored, on_cpu=on_cpu)
        drafter = drafter or _default("drafter_precision", usual, rows)
    if drafter_kind in KINDS_READING_TARGET_CACHE and drafter is not None:
        _check_caches(recipe, f"{key}.precision.drafter" if own.drafter else "precision.drafter", target, drafter,
                      drafter_kind, on_cpu=on_cpu)  # fmt: skip
    return PrecisionPlan(target, drafter, _block_size(recipe, key, own, common, (target, drafter), stored))


def _check_section(
    place: str, section: Precision, drafter_kind: str, stored: StoredPrecision, origin: RecipeSource
) -> None:
    """Raise RecipeError for a drafter's precision that means nothing, and for weights that cannot stay as stored."""
    if section.drafter is not None and drafter_kind not in (*KINDS_WITH_WEIGHTS, *KINDS_SHARING_TARGET_WEIGHTS):
        raise inapplicable_key(f"{place}.drafter", "drafter", "drafter.kind", drafter_kind, KINDS_WITH_WEIGHTS, origin)
    for part in ("target", "drafter"):
        if getattr(section, part) == STORED and part not in stored.coded:
            raise origin.refusal(
                f"{place}.{part}", f"'{STORED}'", "it for a GGUF file without an adapter, and with gate and up "
                "of its experts both in blocks: other weights are no codes that could stay as they are",
                "leave it out, or say int8 or int4",
            )  # fmt: skip


def _default(dimension: str, stored: str | None, rows: Sequence[SupportRow]) -> str:
    """Return the first precision that all rows support: the stored one, float32, float16. Without any, float32, which
    the caller refuses."""
    words = (word for word in (stored, PRECISION, HALF) if word and all(word in row[dimension] for row in rows))
    return next(words, PRECISION)


def _beside_codes(target: str, stored: StoredPrecision, *, on_cpu: bool) -> str:
    """Return the default precision of a drafter beside a target whose weights are codes."""
    if target == STORED and "drafter" in stored.coded:
        return STORED
    if not on_cpu:  # drafts are computed in the precision in which such a target is
        return stored.drafter if stored.drafter in FLOATS and stored.drafter != PRECISION else HALF
    return FAST if stored.drafter is None or stored.drafter in FLOATS else stored.drafter


def _check_caches(recipe: Recipe, place: str, target: str, drafter: str, kind: str, *, on_cpu: bool) -> None:
    """Raise RecipeError for a drafter that reads the target's KV cache and computes in another dtype than it has."""

    def computes(word: str) -> str:
        return PRECISION if on_cpu else word if word in FLOATS else HALF

    if computes(drafter) != computes(target):
        reason = f"drafter.kind {kind} reads the target's caches"
        expected = f"one that computes in {computes(target)}, as target: {target} does: {reason}"
        raise recipe.origin.refusal(place, f"'{drafter}'", expected, f"remove {place}, or set it to {computes(target)}")


def _block_size(
    recipe: Recipe,
    key: str,
    own: Precision,
    common: Precision,
    words: tuple[str | None, ...],
    stored: StoredPrecision,
) -> int | None:
    if IN_BLOCKS in words:
        return own.block_size or common.block_size or stored.block_size or BLOCK_SIZE
    if own.block_size is not None:
        raise _needs_int4(recipe, f"{key}.precision.block_size", own.block_size)
    return None


def _needs_int4(recipe: Recipe, key: str, written: int) -> RecipeError:
    return recipe.origin.refusal(key, str(written), "it only where target or drafter is int4", f"remove {key}")


def _precision_words(key: str, written: Engine, precision: PrecisionPlan, drafter_kind: str) -> list[Word]:
    own = written.precision or Precision()

    def place(name: str) -> str:
        return f"{key}.precision.{name}" if getattr(own, name) is not None else f"precision.{name}"

    words = [(place("target"), "precision", precision.target)]
    if precision.drafter is not None:
        decides = "target" if drafter_kind in KINDS_SHARING_TARGET_WEIGHTS else "drafter"
        words.append((place(decides), "drafter_precision", precision.drafter))
    if precision.block_size is not None:
        words.append((place("block_size"), "block_size", str(precision.block_size)))
    return words


def _name(
    written: Engine, backend: str, provider: str, capability: str | None, precision: PrecisionPlan, *, several: bool
) -> str:
    """Return the recipe's name of the engine; without one, a name of backend, provider or capability, and precision."""
    if written.name:
        return f"{written.name}-{capability}" if several else written.name
    where = provider if backend == "onnxruntime" else capability
    return "-".join(filter(None, (backend, where, "" if precision.target == PRECISION else precision.target)))


def _refuse_duplicate(recipe: Recipe, key: str, engine: EnginePlan, others: Iterable[EnginePlan]) -> None:
    def identity(one: EnginePlan) -> tuple[object, ...]:
        return one.backend, one.provider, one.compute_capability, one.precision

    for other in others:
        if identity(other) == identity(engine):
            received = f"{engine.backend} on {engine.compute_capability or engine.provider} a second time"
            raise recipe.origin.refusal(key, received, "engines that differ", f"remove {key}")
        if other.name == engine.name:
            received = f"'{engine.name}' a second time"
            raise recipe.origin.refusal(f"{key}.name", received, "a name of its own", f"change {key}.name")
