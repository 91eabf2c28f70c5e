"""Decide the drafter from the section `drafter`: models, layers, the tree, and whether drafts are sampled."""

from dataclasses import replace
from pathlib import Path

from speccompile.compiler.checkpoints.json_files import CONFIG
from speccompile.drafters import DEFAULT_KIND, DEFAULT_TOKENS, DRAFTING_METHODS, TARGET_SPECIFIC_KINDS
from speccompile.drafters.find import AUTO, find_carried, find_kind, refuse_head
from speccompile.drafters.folder import has_weights
from speccompile.drafters.method import MethodRequest
from speccompile.plan.plan import TEXT, DrafterPlan, ModelPlan, RetrievalPlan
from speccompile.plan.recipe_source import RecipeSource, inapplicable_key
from speccompile.recipe.adapter import adapter_notes
from speccompile.recipe.cache_schema import Cache
from speccompile.recipe.capabilities import DRAFTER_KEYS
from speccompile.recipe.combinations import check_combination, matching_rows
from speccompile.recipe.engines import PRECISION
from speccompile.recipe.heads import decide_head
from speccompile.recipe.layers import check_layers, decide_layers
from speccompile.recipe.over_texts import check_text_drafts, check_text_pair
from speccompile.recipe.resolve import resolve_folder, resolve_model
from speccompile.recipe.retrieval import decide_retrieval
from speccompile.recipe.schema import Drafter, Model, Precision, Recipe
from speccompile.recipe.tokenizers import check_mapped_pair, mapped_note
from speccompile.recipe.trees import (
    NO_TREE,
    check_branching,
    check_successors,
    decide_default_tree,
    decide_lookahead,
    decide_tree,
)
from speccompile.recipe.vocabulary_match import check_vocabulary_match

NGRAM = 3
FEWEST_MODELS = 2


def drafter_kind(recipe: Recipe) -> str:
    return (recipe.drafter or Drafter()).kind or DEFAULT_KIND


def is_untrained(recipe: Recipe) -> bool:
    """Return whether the drafter is the missing output of the section `train`: the Hub is then not asked for it."""
    written = recipe.drafter
    if recipe.train is None or written is None:
        return False
    reference = written.models[-1].model if written.models else written.model
    return reference is not None and not recipe.origin.resolve(reference).exists()


def is_silent(recipe: Recipe) -> bool:
    """Return whether a recipe names neither a drafter's kind nor its folder."""
    return recipe.drafter is None or (recipe.drafter.kind is None and recipe.drafter.model is None)


def with_kind(recipe: Recipe, target: Path | None) -> tuple[Recipe, list[str]]:
    """Return the recipe with a drafter kind, and notes on how it was decided: the kind in the drafter's folder, for
    `kind: auto` or a model without kind; for a silent recipe, the best one that needs no training. target: folder of
    the target of a silent recipe. Raise RecipeError and CheckpointError as `resolve_folder` and `find_kind`."""
    written = recipe.drafter or Drafter()
    if written.kind not in (None, AUTO):
        return recipe, []
    if target is not None:
        kind, reason = _default_kind(target)
        note = f"drafter.kind is {kind}, {reason}; name another drafter, or none for no drafts"
        if kind == DEFAULT_KIND and written.tokens is None and written.tree is None:
            written = written.model_copy(update={"tokens": DEFAULT_TOKENS})
        return _having(recipe, written, kind), [note]
    if written.model is None:
        hint = "add it, for example `model: demo/drafter`"
        raise recipe.origin.refusal("drafter.model", "nothing", "the folder that says its kind", hint)
    folder, _ = resolve_folder(
        "drafter", written.model, written.revision, recipe.origin, heads=True, tokenizer=recipe.target.tokenizer
    )
    return _having(recipe, written, find_kind(folder)), []


def _having(recipe: Recipe, written: Drafter, kind: str) -> Recipe:
    found = recipe.model_copy(update={"drafter": written.model_copy(update={"kind": kind})})
    found._origin = recipe.origin
    return found


def _default_kind(folder: Path) -> tuple[str, str]:
    """Return the kind for a target's folder, and the reason: the draft layers that its checkpoint carries, else a
    lookup in the text."""
    if not (folder / CONFIG).is_file() or not has_weights(folder):
        return DEFAULT_KIND, "the default"  # reading the target reports it
    carried = find_carried(folder)
    if carried is None:
        return DEFAULT_KIND, "which needs no training: the checkpoint carries no draft layers"
    kind, dialect, evidence = carried
    if dialect.refused:
        reason = f"which needs no training: {dialect.name}'s draft layers are not compiled ({dialect.refused})"
        return DEFAULT_KIND, reason
    return kind, f"which the checkpoint carries ({dialect.name}: {evidence})"


def decide_draft(recipe: Recipe, decoding: str, method: str) -> DrafterPlan:
    """Return the plan of the drafter without facts of checkpoints. Its kind, decoding and method must be known ones.

    Raise RecipeError for keys that do not apply to the kind, for missing keys, and for invalid combinations.
    """
    written, kind = recipe.drafter or Drafter(), drafter_kind(recipe)
    _check_keys(written, kind, recipe.origin)
    tree, tokens = NO_TREE, 0
    own = DRAFTING_METHODS[kind].default_tree
    if own is not None:
        tree, tokens = decide_default_tree(written, own, recipe.origin)
    elif "tree" in DRAFTER_KEYS[kind]:
        by_votes = DRAFTING_METHODS[kind].drafts_on_host
        tree, tokens = decide_tree(written, len(written.models or [kind]), recipe.origin, by_votes=by_votes)
    lookahead = None
    if "level" in DRAFTER_KEYS[kind]:
        lookahead, tree, tokens = decide_lookahead(written, recipe.origin)
    words = {"drafter": kind, "decoding": decoding, "method": method, "tree": tree.kind}
    sampled = words | {"sample": "true"}
    check_combination(sampled if written.sample else words, recipe.origin)
    sample = bool(matching_rows(sampled)) if written.sample is None else written.sample
    if written.tokenizer == TEXT:
        check_text_drafts(written, kind, tree, method, recipe.origin)
        sample = False
    ngram = (written.ngram or NGRAM) if "ngram" in DRAFTER_KEYS[kind] else None
    threshold = DRAFTING_METHODS[kind].threshold if written.threshold is None else written.threshold
    layers = None if written.layers is None else decide_layers(written.layers, recipe.origin)
    successors = (written.top_k or own.top_k) if own is not None else DRAFTING_METHODS[kind].target_top_k
    options = {name: value for name in DRAFTING_METHODS[kind].section if (value := getattr(written, name)) is not None}
    draft = DrafterPlan(
        kind, tokens, tree, sample, ngram, layers=layers, threshold=threshold, lookahead=lookahead,
        successors=successors, tokenizer=written.tokenizer, options=options,
    )  # fmt: skip
    decide, batch_size = DRAFTING_METHODS[kind].decide, (recipe.cache or Cache()).batch_size or 1
    asked = MethodRequest(written, recipe.origin, tree, tokens, method, batch_size)
    return replace(draft, **decide(asked)) if decide else draft


def decide_models(recipe: Recipe, target: ModelPlan, draft: DrafterPlan) -> tuple[DrafterPlan, list[str]]:
    """Return the plan of the drafter with its models or head, and notes on them and on the target's layers that draft.

    Raise RecipeError for a recipe that the target's checkpoint, or a drafter's, does not allow, CheckpointError for a
    drafter's folder that does not fit its kind.
    """
    notes = check_layers(draft.layers, target, recipe.origin) if draft.layers else []
    if draft.kind in TARGET_SPECIFIC_KINDS:
        draft = decide_head(recipe, target, draft)
        assert draft.head is not None
        notes += draft.head.notes
    if draft.head is not None:
        check_branching(draft.tree, target.facts.vocabulary_size, draft.sample, recipe.origin)
        return draft, notes
    if DRAFTING_METHODS[draft.kind].drafts_on_host:
        draft = replace(draft, retrieval=decide_retrieval(recipe.drafter or Drafter(), target, recipe.origin))
    if draft.over_texts:
        draft = replace(draft, retrieval=RetrievalPlan(None, None, None, None))
    models, common = list[ModelPlan](), list[int]()
    for section, key, written in _written_models(recipe.drafter or Drafter()):
        model, about, shared = _decide_model(recipe, target, draft, section, key, written)
        models.append(model)
        notes += about
        common += [] if shared is None else [shared]
    check_successors(draft.successors, target.facts.vocabulary_size, recipe.origin)
    if draft.lookahead is None:  # siblings of lookahead need not differ
        apart = () if draft.over_texts else models
        sizes = common or [each.facts.vocabulary_size for each in (target, *apart)]
        check_branching(draft.tree, min(sizes), draft.sample, recipe.origin)
    read_mask = DRAFTING_METHODS[draft.kind].read_mask
    mask_token = read_mask(models[0].folder, models[0].facts.vocabulary_size) if read_mask else None
    return replace(draft, models=tuple(models), mask_token=mask_token), notes


def _decide_model(
    recipe: Recipe, target: ModelPlan, draft: DrafterPlan, section: str, key: str, written: Model
) -> tuple[ModelPlan, list[str], int | None]:
    """Return one draft model, notes on it, and the number of tokens that it shares with the target if drafts are
    mapped. section, key: place of the model in the recipe."""
    drafter, origin = recipe.drafter or Drafter(), recipe.origin
    where = (section, written.model, written.revision)
    tokenizer = recipe.target.tokenizer  # of a GGUF file
    refuse_head(resolve_folder(*where, origin, tokenizer=tokenizer)[0], draft.kind)
    adapter = drafter.adapter if drafter.model is not None else None
    precision = (recipe.precision or Precision()).drafter or PRECISION
    model = resolve_model(*where, precision, origin, tokenizer, adapter)
    notes, about = adapter_notes("the drafter", model, adapter), f"{section}: " if drafter.models else ""
    if draft.over_texts:
        check_text_pair(target, model, origin)
        return model, [*notes, "drafts are texts of the drafter's, which the host turns into the target's tokens"], None
    if draft.tokenizer is not None:
        overlap = check_mapped_pair(target, model, origin)
        return model, [*notes, about + mapped_note(overlap)], overlap.common
    found = check_vocabulary_match(target, model, key, origin, maps="tokenizer" in DRAFTER_KEYS[draft.kind])
    return model, [*notes, *(f"{about}{note}" for note in found)], None


def _written_models(written: Drafter) -> list[tuple[str, str, Model]]:
    """Return section, key and content of every draft model."""
    if written.model is not None:
        return [("drafter", "drafter.model", Model(model=written.model, revision=written.revision))]
    sections = ((f"drafter.models.{index}", model) for index, model in enumerate(written.models or ()))
    return [(section, section, model) for section, model in sections]


def _check_keys(written: Drafter, kind: str, origin: RecipeSource) -> None:
    """Raise RecipeError for keys that do not apply to the kind, and for missing keys that it requires."""
    known = DRAFTER_KEYS[kind]
    for name in Drafter.model_fields:
        if name not in known and getattr(written, name) is not None:
            kinds = [other for other, names in DRAFTER_KEYS.items() if name in names]
            raise inapplicable_key(f"drafter.{name}", "drafter", "drafter.kind", kind, kinds, origin)
    for name, (what, example) in (DRAFTING_METHODS[kind].required_keys or {}).items():
        if getattr(written, name) is None:
            hint = f"add it, for example `{name}: {example}`"
            raise origin.refusal(f"drafter.{name}", "nothing", f"{what} that drafter.kind {kind} drafts with", hint)
    if written.models is not None and len(written.models) < FEWEST_MODELS:
        hint = "add one, or set drafter.kind to model"
        raise origin.refusal("drafter.models", f"{len(written.models)} of them", "two models or more", hint)
