"""The drafter with which a training begins: from the folder at `train.begin`, or new."""

from dataclasses import dataclass, replace
from pathlib import Path

from speccompile.compiler.checkpoints.json_files import CONFIG, read_json_object
from speccompile.compiler.checkpoints.multimodal import text_config
from speccompile.drafters import DRAFTING_METHODS
from speccompile.drafters.find import read_head, refuse_head
from speccompile.drafters.method import OWN, Training
from speccompile.drafters.target import check_tap
from speccompile.plan.head import HeadPlan, HeadRequest, HeadTarget
from speccompile.plan.plan import DrafterPlan, ModelPlan
from speccompile.plan.recipe_source import RecipeSource, format_value, one_of
from speccompile.recipe.drafter_shape import decide_shape
from speccompile.recipe.engines import PRECISION
from speccompile.recipe.heads import check_reach
from speccompile.recipe.initial_drafter import BeginSource, check_begin_model, check_initial_drafter
from speccompile.recipe.resolve import model_in, resolve_folder
from speccompile.recipe.schema import Drafter, Recipe
from speccompile.recipe.training_schema import Train
from speccompile.recipe.training_sources import check_source_begin
from speccompile.recipe.vocabulary_match import check_vocabulary_match


@dataclass(frozen=True)
class TrainingRequest:
    """Request of a training. written: the recipe's section `train`. training: how drafters of this kind are trained.
    draft: plan of the drafter's drafts."""

    recipe: Recipe
    written: Train
    kind: str
    training: Training
    target: ModelPlan
    draft: DrafterPlan

    @property
    def origin(self) -> RecipeSource:
        """Return the source of the recipe, which errors name."""
        return self.recipe.origin


@dataclass(frozen=True)
class InitialDrafter:
    """Initial drafter of a training, from a folder or new. limit: maximum number of consecutive drafts, or None."""

    folder: Path | None
    sizes: dict[str, int | str]
    vocabulary: int | None
    taps: tuple[str, ...]
    dialect: str
    depth: int
    limit: int | None
    notes: tuple[str, ...] = ()


def decide_initial_drafter(request: TrainingRequest) -> InitialDrafter:
    """Return the drafter at `train.begin`, or a new one. Raise RecipeError or CheckpointError for one that the training
    or the recipe's drafts cannot take."""
    found = _begin(request) or _new(request)
    _check_reach(request, found)
    return found


def _begin(request: TrainingRequest) -> InitialDrafter | None:
    """Return the initial drafter at `train.begin`, or None for a new one. Raise RecipeError or CheckpointError for one
    of another kind, dialect or target."""
    written, kind, training, target = request.written, request.kind, request.training, request.target
    origin = BeginSource.of(request.origin)
    if written.begin is None and training.makes_new:
        return None
    if written.begin is None and "model" in (DRAFTING_METHODS[kind].required_keys or {}):
        hint = "name the folder of a published one"
        raise origin.refusal("train.begin", "nothing", f"a drafter to go on from: kind {kind} has no new ones", hint)
    for name in ("taps", "vocabulary", "shape"):
        if getattr(written, name) is not None:
            expected = "it only for a new drafter: the folder at train.begin says it of its own"
            raise origin.refusal(f"train.{name}", "a value", expected, f"remove train.{name}, or train.begin")
    folder = target.folder
    if written.begin is not None:
        folder, _ = resolve_folder("train.begin", written.begin, None, origin, heads=True)
    dialect = written.save.dialect if written.save else None
    if DRAFTING_METHODS[kind].weights == OWN:
        begun = _begin_model(request, folder, origin)
    else:
        begun = _begin_head(request, folder, origin)
    reached = max(begun.depth, request.draft.tree.depth)
    if dialect not in (None, begun.dialect):
        expected = f"'{begun.dialect}', the dialect of '{written.begin}', which it is written in again"
        raise origin.refusal("train.save.dialect", f"'{dialect}'", expected, "remove train.save.dialect")
    return replace(begun, depth=_depth(written, min(reached, begun.limit or reached), begun.limit, origin))


def _begin_model(request: TrainingRequest, folder: Path, origin: RecipeSource) -> InitialDrafter:
    kind, training, target, reference = request.kind, request.training, request.target, request.written.begin or ""
    refuse_head(folder, kind)
    model, read_mask = model_in(folder, reference, PRECISION), DRAFTING_METHODS[kind].read_mask
    if read_mask is not None:
        read_mask(folder, model.facts.vocabulary_size)
    check_begin_model(model, origin)
    check_source_begin(model, target, origin)
    notes = check_vocabulary_match(target, model, "train.begin", origin)
    ours, theirs = model.facts.hidden_size, target.facts.hidden_size
    if ours is not None and theirs is not None and ours > theirs:
        received = f"'{reference}', {ours} wide"
        hint = "a drafter that is wider than its target costs more than it can save"
        raise origin.refusal("train.begin", received, f"at most {theirs}, the width of the target", hint)
    return InitialDrafter(folder, {}, None, (), training.dialects[0], training.depth, None, notes)


def _begin_head(request: TrainingRequest, folder: Path, origin: RecipeSource) -> InitialDrafter:
    drafter, target, training = request.recipe.drafter or Drafter(), request.target, request.training
    facts = target.facts
    sizes = (facts.vocabulary_size, facts.hidden_size, facts.layers)
    wanted = HeadTarget(target.reference, *sizes, target.folder)
    taps, switches = tuple(drafter.taps or ()), drafter.switches or {}
    asked = HeadRequest(request.kind, wanted, origin, taps, switches, drafter.threshold)
    head: HeadPlan = read_head(folder, asked)
    check_initial_drafter(head, training, asked, origin)
    size = head.draft_vocabulary_size if head.draft_vocabulary_size < facts.vocabulary_size else None
    return InitialDrafter(
        folder, {}, size, head.taps, head.dialect, head.tokens or training.depth, head.tokens, head.notes
    )


def _check_reach(request: TrainingRequest, begun: InitialDrafter) -> None:
    """Raise RecipeError if the recipe asks for more drafts than the trained drafter can make: `build` would fail."""
    drafter = request.recipe.drafter or Drafter()
    if drafter.tokens is not None or drafter.tree is not None:
        who = "a new drafter of this train.depth" if begun.folder is None else f"the head in {begun.folder}"
        check_reach(request.draft, begun.limit, who, request.origin, is_chain=drafter.tree is None)


def _new(request: TrainingRequest) -> InitialDrafter:
    """Return a new drafter: its dialect, taps, sizes and vocabulary. Raise RecipeError, also for `drafter.taps` and
    `drafter.switches`, which override an existing head's files."""
    written, kind, training, target = request.written, request.kind, request.training, request.target
    origin, drafter = request.origin, request.recipe.drafter or Drafter()
    for name, hint in (("taps", "name them in train.taps"), ("switches", "remove drafter.switches")):
        if getattr(drafter, name) is not None:
            expected = f"it only with train.begin: what a new {kind} is, the exported folder says by itself"
            raise origin.refusal(f"drafter.{name}", "a value", expected, hint)
    whole = read_json_object(target.folder / CONFIG) or {}
    config = text_config(whole, target.folder) or whole
    dialect = (written.save.dialect if written.save else None) or training.dialects[0]
    if dialect not in training.dialects:
        expected = f"{one_of([format_value(each) for each in training.dialects])} for kind {kind}"
        raise origin.refusal("train.save.dialect", format_value(dialect), expected, f"set it to {training.dialects[0]}")
    taps = _taps(request)
    own_sizes = training.sizes if target.facts.source is None else training.source_sizes or {}
    sizes = decide_shape(own_sizes, config, written.shape or {}, origin)
    found = training.refusal(dialect, taps, sizes) if training.refusal else None
    if found is not None:
        key, received, expected = found
        hint = f"change train.{key}" + (" or train.save.dialect" if len(training.dialects) > 1 else "")
        raise origin.refusal(f"train.{key}", received, expected, hint)
    vocabulary = _vocabulary(request)
    wanted = request.draft.tree.depth if written.depth is None else 0  # a head for a tree must reach its leaves
    depth = _depth(written, max(training.depth, wanted), None, origin)
    return InitialDrafter(
        None, sizes, vocabulary, taps, dialect, depth, depth if training.max_depth_is_trained else None
    )


def _taps(request: TrainingRequest) -> tuple[str, ...]:
    written, origin, layers = request.written, request.origin, request.target.facts.layers or 0
    default = request.training.taps(layers)
    if written.taps is None:
        return default
    if not default:
        raise origin.refusal(
            "train.taps", "a value", f"nothing: kind {request.kind} reads no features", "remove train.taps"
        )
    for tap in written.taps:
        check_tap(tap, layers, origin, "train.taps", ", ".join(default))
    return tuple(written.taps)


def _vocabulary(request: TrainingRequest) -> int | None:
    """Return the size of the draft vocabulary, or None for the target's."""
    size, whole, origin = request.written.vocabulary, request.target.facts.vocabulary_size, request.origin
    if size is not None and not request.training.vocabulary:
        expected = f"nothing: drafters of kind {request.kind} have the target's vocabulary"
        raise origin.refusal("train.vocabulary", str(size), expected, "remove train.vocabulary")
    if size is not None and size > whole:
        raise origin.refusal(
            "train.vocabulary", str(size), f"at most {whole}, the target's", f"set it to {whole} or less, or remove it"
        )
    return None if size == whole else size


def _depth(written: Train, default: int, limit: int | None, origin: RecipeSource) -> int:
    if written.depth is None:
        return default
    if limit is not None and written.depth > limit:
        expected = f"at most {limit}, which is how far the drafter at train.begin drafts"
        raise origin.refusal("train.depth", str(written.depth), expected, f"set it to {limit} or less")
    return written.depth
