"""Recipe -> Plan: decide every default, and make the checks that need several keys or the files."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from speccompile.compiler.checkpoints.gguf.conversion import GGUF_INDEX
from speccompile.compiler.checkpoints.json_files import CONFIG
from speccompile.compiler.checkpoints.refused_types import refuse_type
from speccompile.drafters import DRAFTING_METHODS
from speccompile.machine.formats.image_settings import ImageSettings
from speccompile.plan.caches import CachePlan, spare_rows
from speccompile.plan.plan import (
    RETRIEVAL,
    TEXT,
    DrafterPlan,
    EnginePlan,
    ModelPlan,
    Plan,
    PrecisionPlan,
    VerifyPlan,
)
from speccompile.plan.precisions import PRECISIONS
from speccompile.recipe.adapter import adapter_notes
from speccompile.recipe.adapter_slots import decide_adapter_slots
from speccompile.recipe.cache_schema import Cache
from speccompile.recipe.caches import cache_notes, decide_caches
from speccompile.recipe.cascade import decide_cascade
from speccompile.recipe.constraint_tokenizer import check_constraints
from speccompile.recipe.drafter import decide_draft, decide_models, drafter_kind, is_silent, is_untrained, with_kind
from speccompile.recipe.engines import PRECISION, Word, decide_engines
from speccompile.recipe.generation_rules import generation_rules_note
from speccompile.recipe.images import check_images, decide_images, least_chunk, with_processor
from speccompile.recipe.over_texts import check_text_engines
from speccompile.recipe.prefixes import decide_prefixes
from speccompile.recipe.prove import check_prompts, decide_prove
from speccompile.recipe.resolve import model_in, resolve_folder
from speccompile.recipe.rings import decide_rings, ring_note
from speccompile.recipe.rope import check_long_factors, default_length, limit_hint, rope_notes
from speccompile.recipe.schema import Engine, Precision, Recipe
from speccompile.recipe.sources import decide_source
from speccompile.recipe.speech import hears
from speccompile.recipe.states import check_states, graphs_beside
from speccompile.recipe.stored_precision import StoredPrecision, stored_precision
from speccompile.recipe.verification import decide_verification, verify_method

DECODING, SAMPLING = "greedy", "sampling"
SAMPLING_SECONDS = 1e-3
"""Seconds that a round of a bundle that samples takes longer, at temperature 0 as well: 0.5 ms with 4 thousand tokens
of vocabulary, 0.5 to 1.1 with 128 thousand (Zen 4, one thread)."""
READ_SPEED = 20e9
"""Bytes of weights a second that a processor reads at least, where a round costs what reading them costs."""
UNNOTICED = 0.02
"""Share of a round's time that a bundle may lose for being able to sample without having been asked."""
MAX_LENGTH = 2048
BATCH_SIZE = 1
PREFILL_CHUNK = 128


def make_plan(recipe: Recipe) -> Plan:
    """Decide every default of a recipe, and raise an error for a recipe that cannot be built, before any work.

    Models with a Hub id are downloaded. Raise RecipeError, PromptError for the content of a prompts file,
    CheckpointError and UnsupportedModelError for a model's files.
    """
    _refuse_untrained(recipe)
    # Models are downloaded after the checks of the recipe's words, unless the target's folder must say what drafts.
    located = _locate_target(recipe) if is_silent(recipe) else None
    recipe, notes = with_kind(recipe, located[0] if located else None)
    words = required_capabilities(recipe)
    graphs, kind, method, decoding, constraints = (word for _, _, word in words)
    engines = decide_engines(recipe, words, kind)
    adapters = decide_adapter_slots(recipe, engines)
    draft = decide_draft(recipe, decoding, method)
    verify = decide_verification(recipe)
    _refuse_fusing_nothing(recipe, graphs, kind)
    prove = decide_prove(recipe)
    models = _read_models(recipe, located, words, verify, draft, engines)
    target, draft, engines, graphs, images = models.target, models.draft, models.engines, models.graphs, models.images
    check_prompts(prove, target)
    max_length, chunk, caches = _decide_buffers(recipe, target, draft, graphs, engines, images)
    plan = Plan(
        name=recipe.name,
        target=target,
        drafter=draft,
        decoding=models.decoding,
        graphs=graphs,
        verify=verify,
        max_length=max_length,
        batch_size=(recipe.cache or Cache()).batch_size or BATCH_SIZE,
        prefill_chunk=chunk,
        engines=engines,
        prove=prove,
        notes=(*notes, *models.notes),
        constraints=constraints == "true" or hears(target),
        caches=caches,
        adapters=adapters,
        prefixes=decide_prefixes(recipe, target, engines),
        images=images,
        source=decide_source(recipe, target, draft, engines, graphs, caches),
    )
    return replace(plan, notes=(*plan.notes, *_notes(recipe, plan, models.stored)))


def _refuse_untrained(recipe: Recipe) -> None:
    if is_untrained(recipe):
        raise recipe.origin.refusal(
            "drafter.model", "a folder that is not there yet", "the drafter that the section train exports there",
            f"train it first: speccompile train {recipe.origin.path}",
        )  # fmt: skip


@dataclass(frozen=True)
class _Models:
    """Models of a plan, read from their folders, and what depends on them. stored: precisions of their weights in their
    files; notes: on the drafter."""

    target: ModelPlan
    draft: DrafterPlan
    decoding: str
    graphs: str
    engines: tuple[EnginePlan, ...]
    images: ImageSettings | None
    stored: StoredPrecision
    notes: list[str]


def _read_models(
    recipe: Recipe,
    located: tuple[Path, str | None] | None,
    words: list[Word],
    verify: VerifyPlan,
    draft: DrafterPlan,
    engines: Sequence[EnginePlan],
) -> _Models:
    """Read the target and the drafter. located: the target's folder and commit, if they are known. draft and engines:
    as decided by the recipe alone."""
    graphs, kind, method, decoding, _ = (word for _, _, word in words)
    target = _read_target(recipe, *(located or _locate_target(recipe)))
    if recipe.decoding is None and not hears(target) and _samples_for_free(target, engines):
        decoding, draft = SAMPLING, decide_draft(recipe, SAMPLING, method)
    draft, notes = _read_drafters(recipe, target, draft, verify)
    graphs = graphs_beside(target, recipe, graphs)
    check_states(recipe, target, draft, graphs)
    images = decide_images(recipe, target, draft, engines)
    target = target if images is None else with_processor(target)
    stored = stored_precision(target.facts, [model.facts for model in draft.models], draft.head)
    engines = decide_engines(recipe, words, kind, stored)
    check_text_engines(draft, engines, recipe.origin)
    target, draft = _with_precisions(recipe, target, draft, engines[0].precision)
    return _Models(target, draft, decoding, graphs, engines, images, stored, notes)


def _locate_target(recipe: Recipe) -> tuple[Path, str | None]:
    """Return the target's folder and commit. Raise RecipeError for a tokenizer that is not for a GGUF file."""
    written, origin = recipe.target, recipe.origin
    folder, commit = resolve_folder(
        "target", written.model, written.revision, origin, tokenizer=written.tokenizer,
        adapter=written.adapter,
    )  # fmt: skip
    if written.tokenizer is not None and not (folder / GGUF_INDEX).is_file():
        raise origin.refusal(
            "target.tokenizer", f"'{written.tokenizer}'", "it for a GGUF file alone: other models have their own",
            "remove target.tokenizer",
        )  # fmt: skip
    return folder, commit


def _read_target(recipe: Recipe, folder: Path, commit: str | None) -> ModelPlan:
    target = model_in(folder, recipe.target.model, PRECISION, recipe.target.revision, commit)
    refuse_type(target.facts.model_type, folder / CONFIG)
    check_constraints(recipe, target)
    return target


def _read_drafters(
    recipe: Recipe, target: ModelPlan, draft: DrafterPlan, verify: VerifyPlan
) -> tuple[DrafterPlan, list[str]]:
    """Return the drafter's plan with its models or head and its cascade, and notes on them."""
    draft, notes = decide_models(recipe, target, draft)
    for model in draft.models if draft.head is None else ():
        refuse_type(model.facts.model_type, model.folder / CONFIG)
    return decide_cascade(recipe, target, draft, verify), notes


def sampling_cost(target: ModelPlan, engine: EnginePlan) -> float:
    """Return the estimated share of a round's time that being able to sample costs in an engine on a CPU."""
    facts, word = target.facts, engine.precision.target
    bits = PRECISIONS[word].average_bits / PRECISIONS[facts.dtype].average_bits if facts.dtype else 1.0
    return SAMPLING_SECONDS / (SAMPLING_SECONDS + bits * facts.weight_bytes / READ_SPEED)


def _samples_for_free(target: ModelPlan, engines: Sequence[EnginePlan]) -> bool:
    return all(engine.provider == "cpu" and sampling_cost(target, engine) <= UNNOTICED for engine in engines)


def _with_precisions(
    recipe: Recipe, target: ModelPlan, draft: DrafterPlan, first: PrecisionPlan
) -> tuple[ModelPlan, DrafterPlan]:
    """Return the models with the recipe's precisions, which an engine's own may replace. first: of the first engine."""
    common, own = recipe.precision or Precision(), (recipe.engines or [Engine()])[0].precision or Precision()
    target = replace(target, precision=common.target or (PRECISION if own.target else first.target))
    word = common.drafter or (PRECISION if own.drafter else first.drafter) or PRECISION
    return target, replace(draft, models=tuple(replace(each, precision=word) for each in draft.models))


def _precision_notes(recipe: Recipe, stored: StoredPrecision, engines: Sequence[EnginePlan]) -> Iterator[str]:
    """Yield a note for each engine that cannot run the stored precision where the recipe names none."""
    for engine in engines:
        own, word = (recipe.engines or [Engine()])[engine.entry].precision or Precision(), engine.precision.target
        if (own.target or (recipe.precision or Precision()).target) is None and stored.target not in (None, word):
            where = " ".join(filter(None, (engine.backend, "on", engine.compute_capability or engine.provider)))
            reason = f"{where} does not run {stored.target}"
            yield f"{engine.name}: weights stored in {stored.target} become {word}: {reason}"


def required_capabilities(recipe: Recipe) -> list[Word]:
    """Return the capabilities that every engine must have."""
    kind = drafter_kind(recipe)
    own = DRAFTING_METHODS[kind].graphs if kind in DRAFTING_METHODS else "separate"
    return [
        ("graphs", "graphs", recipe.graphs or ("separate" if _is_gated_by_host(recipe) else own)),
        ("drafter.kind", "drafter", kind),
        ("verify.method", "method", verify_method(recipe)),
        ("decoding", "decoding", recipe.decoding or DECODING),
        ("constraints", "constraints", str(bool(recipe.constraints)).lower()),
    ]


def _refuse_fusing_nothing(recipe: Recipe, graphs: str, kind: str) -> None:
    if graphs == "fused" and not DRAFTING_METHODS[kind].drafts:
        hint = "set graphs to separate or remove it, or add a drafter"
        raise recipe.origin.refusal("graphs", "'fused', but there is no drafter to fuse", "'separate'", hint)
    over_texts = recipe.drafter is not None and recipe.drafter.tokenizer == TEXT
    if graphs == "fused" and (DRAFTING_METHODS[kind].drafts_on_host or over_texts):
        about = "over texts" if over_texts else f"of drafter.kind {kind}"
        received = f"'fused', but drafts {about} come from the host"
        raise recipe.origin.refusal("graphs", received, "'separate'", "set graphs to separate, or remove it")
    if graphs == "fused" and _is_gated_by_host(recipe):
        received = "'fused', but a step drafts as it verifies, and drafter.gate.kind retrieval is asked in between"
        raise recipe.origin.refusal("graphs", received, "'separate'", "set graphs to separate")


def _is_gated_by_host(recipe: Recipe) -> bool:
    """Return whether the host may replace the drafter's drafts, between the target's run and the drafter's."""
    gate = recipe.drafter.gate if recipe.drafter else None
    return gate is not None and gate.kind == RETRIEVAL


def _notes(recipe: Recipe, plan: Plan, stored: StoredPrecision) -> Iterator[str]:
    """Yield what a user may not expect of a plan."""
    models = (plan.target, *plan.drafter.models)
    yield from filter(None, map(_multimodal_note, models if plan.images is None else plan.drafter.models))
    yield from adapter_notes("the target", plan.target, recipe.target.adapter)
    yield from _precision_notes(recipe, stored, plan.engines)
    yield from cache_notes(plan.caches, plan.prove, has_source=plan.source is not None)
    yield from ring_note(plan.caches)
    yield from filter(None, (generation_rules_note(plan.target),))
    for model in models:
        yield from rope_notes(model, plan.max_length)


def _multimodal_note(model: ModelPlan) -> str:
    count = model.facts.left_out
    decoder = f"'{model.reference}' is multimodal: its text decoder is compiled, {count} other tensors are left out"
    return decoder if count else ""


def _decide_buffers(
    recipe: Recipe,
    target: ModelPlan,
    draft: DrafterPlan,
    graphs: str,
    engines: Sequence[EnginePlan],
    images: ImageSettings | None,
) -> tuple[int, int, CachePlan]:
    """Return the tokens of a sequence, the tokens of a chunk of a prompt, and the caches."""
    caches = decide_caches(recipe, target, draft, engines)
    max_length = decide_max_length(recipe, target, draft.models)
    least = least_chunk(images, int(graphs == "fused" and DRAFTING_METHODS[draft.kind].pairs_next_token))
    chunk = _decide_prefill_chunk(recipe, max_length, draft, graphs, least)
    check_images(recipe, images, caches, max_length, chunk, least)
    caches = decide_rings(recipe, caches, target, engines, max_length, spare_rows(chunk, draft.tokens))
    return max_length, chunk, caches


def decide_max_length(recipe: Recipe, target: ModelPlan, drafters: tuple[ModelPlan, ...]) -> int:
    written = (recipe.cache or Cache()).max_length
    limits = [
        (model.facts.positions, name, model)
        for name, model in (("target", target), *(("drafter", drafter) for drafter in drafters))
        if model.facts.positions is not None
    ]
    if written is None:
        written = default_length(target, min([MAX_LENGTH, *(positions for positions, _, _ in limits)]))
    for positions, name, model in limits:
        if written > positions:
            raise recipe.origin.refusal(
                "cache.max_length",
                str(written),
                f"at most {positions}, the positions of the {name} '{model.reference}'{limit_hint(model)}",
                f"set cache.max_length to {positions} or less",
            )
    check_long_factors(recipe, target, written)
    return written


def _decide_prefill_chunk(recipe: Recipe, max_length: int, draft: DrafterPlan, graphs: str, least: int) -> int:
    """Return the tokens of a chunk of a prompt. least: default for a target that sees, whose pictures need them."""
    written = (recipe.cache or Cache()).prefill_chunk
    if written == 1 and graphs == "fused" and DRAFTING_METHODS[draft.kind].pairs_next_token:
        expected = (
            f"2 or more: in one graph with drafter.kind {draft.kind} a chunk begins with the last one's last token"
        )
        hint = "set cache.prefill_chunk to 2 or more, or graphs to separate"
        raise recipe.origin.refusal("cache.prefill_chunk", "1", expected, hint)
    if written is None:
        return min(max(PREFILL_CHUNK, least), max_length)
    if written > max_length:
        hint = f"set cache.prefill_chunk to {max_length} or less"
        raise recipe.origin.refusal(
            "cache.prefill_chunk", str(written), f"at most cache.max_length, which is {max_length}", hint
        )
    return written
