"""The section `train` -> TrainingPlan: decide every default, and make every check that needs no work."""

from dataclasses import dataclass, replace
from pathlib import Path

from speccompile.compiler.checkpoints.gguf.conversion import GGUF_INDEX
from speccompile.compiler.checkpoints.json_files import CONFIG, read_json_object
from speccompile.compiler.checkpoints.multimodal import text_config
from speccompile.drafters import DRAFTING_METHODS
from speccompile.drafters.find import read_head, refuse_head
from speccompile.drafters.method import OWN, Training
from speccompile.drafters.target import check_tap
from speccompile.plan.head import HeadPlan, HeadRequest, HeadTarget
from speccompile.plan.plan import DrafterPlan, ModelPlan
from speccompile.plan.recipe_source import RecipeSource, format_value, one_of
from speccompile.plan.training_plan import DataPlan, LossPlan, TrainingPlan
from speccompile.recipe.decide import decide_max_length, required_capabilities
from speccompile.recipe.drafter import decide_draft
from speccompile.recipe.drafter_shape import decide_shape
from speccompile.recipe.engines import PRECISION, decide_engines
from speccompile.recipe.heads import check_reach
from speccompile.recipe.initial_drafter import BeginSource, check_begin_model, check_initial_drafter
from speccompile.recipe.resolve import model_in, resolve_folder, resolve_model
from speccompile.recipe.schema import Drafter, Recipe
from speccompile.recipe.states import check_states
from speccompile.recipe.training_data import decide_data, feature_bytes
from speccompile.recipe.training_kind import check_masks, find_training, trained_as, training_kind
from speccompile.recipe.training_output import check_output, check_work
from speccompile.recipe.training_parts import decide_evaluate, decide_loss, decide_save, decide_schedule, defaults_for
from speccompile.recipe.training_schema import Train
from speccompile.recipe.training_sources import check_source_begin, check_source_data, check_source_kind
from speccompile.recipe.vocabulary_match import check_vocabulary_match


def plan_training(recipe: Recipe, work: Path | None = None) -> TrainingPlan:
    """Decide every default of a training, and raise an error for one that is not possible, before any work.

    work: the folder of data and checkpoints, build/<name>-train by default. Models with a Hub id are downloaded. Raise
    RecipeError; CheckpointError and UnsupportedModelError for the files of the target and of the initial drafter.
    """
    written, origin = _section(recipe), recipe.origin
    kind = training_kind(recipe)
    training = find_training(kind, origin)
    draft, target = _decide_draft(recipe, kind), _target(recipe)
    check_states(recipe, target, draft, "separate")
    check_masks(kind, target, origin)
    check_source_kind(kind, target, origin)
    scale, output = defaults_for(target), _output(recipe, kind)
    begun = _begin(recipe, written, kind, training, target, draft)
    begun = begun or _new(recipe, written, kind, training, target, draft)
    _check_reach(recipe, draft, begun)
    schedule = decide_schedule(written.schedule, kind, training, scale, origin, is_new=begun.folder is None)
    data = decide_data(written.data, target, scale.length, scale.new_tokens, scale.passages, origin)
    loss = decide_loss(written.loss, kind, training, scale, data.packing, recipe)
    _check_features(data, loss, origin)
    check_source_data(data, loss, target, origin)
    work = work or Path("build") / f"{recipe.name}-train"
    drop = _drop(loss, trained_as(kind), target, origin)
    read = {"train.begin": begun.folder, "target.model": target.folder, "train.loss.drop": drop}
    check_output(output, read, work, origin)
    check_work(work)
    plan = TrainingPlan(
        name=recipe.name,
        kind=trained_as(kind),
        target=target,
        max_length=max(decide_max_length(recipe, target, ()), data.length),
        output=output,
        work=work,
        begin=begun.folder,
        sizes=begun.sizes,
        vocabulary=begun.vocabulary,
        taps=begun.taps,
        dialect=begun.dialect,
        depth=begun.depth,
        data=data,
        loss=loss,
        schedule=schedule,
        evaluate=decide_evaluate(written, draft, begun.limit, scale, origin),
        save_every=scale.save_every,
        keep=2,
        dtype=scale.dtype,
        seed=written.seed or 0,
        notes=(*begun.notes, *_notes(data.features, begun.taps, target, schedule.precision)),
    )
    return decide_save(plan, written.save, scale, origin)


def _section(recipe: Recipe) -> Train:
    if recipe.train is None:
        hint = "for example `train: {data: {kind: text, files: [docs]}, schedule: {seconds: 600}}`"
        raise recipe.origin.refusal("train", "nothing", "a section that names the training data", hint)
    return recipe.train


def _decide_draft(recipe: Recipe, kind: str) -> DrafterPlan:
    """Return the plan of the drafter's drafts. Raise the RecipeError that `build` would for keys of the recipe."""
    drafter = (recipe.drafter or Drafter()).model_copy(update={"kind": kind})
    decided = recipe.model_copy(update={"drafter": drafter})
    decided._origin = recipe.origin
    words = required_capabilities(decided)
    decide_engines(decided, words, kind)
    return decide_draft(decided, words[3][2], words[2][2])


def _target(recipe: Recipe) -> ModelPlan:
    target = resolve_model("target", recipe.target.model, recipe.target.revision, PRECISION, recipe.origin)
    if recipe.drafter is not None and recipe.drafter.tokenizer is not None:
        raise recipe.origin.refusal(
            "drafter.tokenizer", f"'{recipe.drafter.tokenizer}'", "none: a training teaches the target's tokens",
            "remove drafter.tokenizer, and begin with a drafter that has the target's tokenizer",
        )  # fmt: skip
    if recipe.target.tokenizer is not None:
        raise recipe.origin.refusal(
            "target.tokenizer", f"'{recipe.target.tokenizer}'", "none: a training reads safetensors, beside their "
            "tokenizer", "remove target.tokenizer",
        )  # fmt: skip
    if recipe.target.adapter is not None:
        raise recipe.origin.refusal(
            "target.adapter", f"'{recipe.target.adapter}'", "none: a training reads the target's own weights",
            "merge it with peft's merge_and_unload(), save_pretrained(FOLDER), and give that folder as target.model",
        )  # fmt: skip
    if (target.folder / GGUF_INDEX).is_file():
        raise recipe.origin.refusal(
            "target.model", f"the GGUF file '{recipe.target.model}'", "safetensors: answers and features are computed "
            "with them", "use the checkpoint that the GGUF file was converted from",
        )  # fmt: skip
    for what, value in (("its hidden size", target.facts.hidden_size), ("how many layers it has", target.facts.layers)):
        if value is None:
            received = f"'{recipe.target.model}', whose config.json does not say {what}"
            raise recipe.origin.refusal("target.model", received, "a target that does", "add it to the config")
    return target


def _output(recipe: Recipe, kind: str) -> Path:
    """Return the folder of `drafter.model`, or of the last entry of `drafter.models`."""
    written = recipe.drafter or Drafter()
    if "models" in (DRAFTING_METHODS[kind].required_keys or {}):
        assert written.models, "models are needed"
        return recipe.origin.resolve(written.models[-1].model)
    if written.model is None:
        raise recipe.origin.refusal(
            "drafter.model", "nothing", "the folder where the trained drafter will be", "for example `model: drafter`"
        )
    return recipe.origin.resolve(written.model)


@dataclass(frozen=True)
class _InitialDrafter:
    """Initial drafter of a training, from a folder or new. limit: maximum number of consecutive drafts, or None."""

    folder: Path | None
    sizes: dict[str, int | str]
    vocabulary: int | None
    taps: tuple[str, ...]
    dialect: str
    depth: int
    limit: int | None
    notes: tuple[str, ...] = ()


def _begin(
    recipe: Recipe, written: Train, kind: str, training: Training, target: ModelPlan, draft: DrafterPlan
) -> _InitialDrafter | None:
    """Return the initial drafter at `train.begin`, or None for a new one. Raise RecipeError or CheckpointError for one
    of another kind, dialect or target."""
    origin = BeginSource.of(recipe.origin)
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
        begun = _begin_model(folder, kind, written.begin or "", target, training, origin)
    else:
        begun = _begin_head(recipe, folder, kind, training, target, origin)
    reached = max(begun.depth, draft.tree.depth)
    if dialect not in (None, begun.dialect):
        expected = f"'{begun.dialect}', the dialect of '{written.begin}', which it is written in again"
        raise origin.refusal("train.save.dialect", f"'{dialect}'", expected, "remove train.save.dialect")
    return replace(begun, depth=_depth(written, min(reached, begun.limit or reached), begun.limit, origin))


def _begin_model(
    folder: Path, kind: str, reference: str, target: ModelPlan, training: Training, origin: RecipeSource
) -> _InitialDrafter:
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
    return _InitialDrafter(folder, {}, None, (), training.dialects[0], training.depth, None, notes)


def _begin_head(
    recipe: Recipe, folder: Path, kind: str, training: Training, target: ModelPlan, origin: RecipeSource
) -> _InitialDrafter:
    drafter, facts = recipe.drafter or Drafter(), target.facts
    sizes = (facts.vocabulary_size, facts.hidden_size, facts.layers)
    wanted = HeadTarget(target.reference, *sizes, target.folder)
    request = HeadRequest(kind, wanted, origin, tuple(drafter.taps or ()), drafter.switches or {}, drafter.threshold)
    head: HeadPlan = read_head(folder, request)
    check_initial_drafter(head, training, request, origin)
    size = head.draft_vocabulary_size if head.draft_vocabulary_size < facts.vocabulary_size else None
    return _InitialDrafter(
        folder, {}, size, head.taps, head.dialect, head.tokens or training.depth, head.tokens, head.notes
    )


def _check_reach(recipe: Recipe, draft: DrafterPlan, begun: _InitialDrafter) -> None:
    """Raise RecipeError if the recipe asks for more drafts than the trained drafter can make: `build` would fail."""
    drafter = recipe.drafter or Drafter()
    if drafter.tokens is not None or drafter.tree is not None:
        who = "a new drafter of this train.depth" if begun.folder is None else f"the head in {begun.folder}"
        check_reach(draft, begun.limit, who, recipe.origin, is_chain=drafter.tree is None)


def _new(
    recipe: Recipe, written: Train, kind: str, training: Training, target: ModelPlan, draft: DrafterPlan
) -> _InitialDrafter:
    """Return a new drafter: its dialect, taps, sizes and vocabulary. Raise RecipeError, also for `drafter.taps` and
    `drafter.switches`, which override an existing head's files."""
    origin, drafter = recipe.origin, recipe.drafter or Drafter()
    for name, hint in (("taps", "name them in train.taps"), ("switches", "remove drafter.switches")):
        if getattr(drafter, name) is not None:
            expected = f"it only with train.begin: what a new {kind} is, the folder that is left says by itself"
            raise origin.refusal(f"drafter.{name}", "a value", expected, hint)
    whole = read_json_object(target.folder / CONFIG) or {}
    config = text_config(whole, target.folder) or whole
    dialect = (written.save.dialect if written.save else None) or training.dialects[0]
    if dialect not in training.dialects:
        expected = f"{one_of([format_value(each) for each in training.dialects])} for kind {kind}"
        raise origin.refusal("train.save.dialect", format_value(dialect), expected, f"set it to {training.dialects[0]}")
    taps = _taps(written, kind, training, target, origin)
    own_sizes = training.sizes if target.facts.source is None else training.source_sizes or {}
    sizes = decide_shape(own_sizes, config, written.shape or {}, origin)
    found = training.refusal(dialect, taps, sizes) if training.refusal else None
    if found is not None:
        key, received, expected = found
        hint = f"change train.{key}" + (" or train.save.dialect" if len(training.dialects) > 1 else "")
        raise origin.refusal(f"train.{key}", received, expected, hint)
    vocabulary = _vocabulary(written, kind, training, target, origin)
    wanted = draft.tree.depth if written.depth is None else 0  # a head for a tree must reach its leaves
    depth = _depth(written, max(training.depth, wanted), None, origin)
    return _InitialDrafter(
        None, sizes, vocabulary, taps, dialect, depth, depth if training.max_depth_is_trained else None
    )


def _taps(written: Train, kind: str, training: Training, target: ModelPlan, origin: RecipeSource) -> tuple[str, ...]:
    layers = target.facts.layers or 0
    default = training.taps(layers)
    if written.taps is None:
        return default
    if not default:
        raise origin.refusal("train.taps", "a value", f"nothing: kind {kind} reads no features", "remove train.taps")
    for tap in written.taps:
        check_tap(tap, layers, origin, "train.taps", ", ".join(default))
    return tuple(written.taps)


def _vocabulary(written: Train, kind: str, training: Training, target: ModelPlan, origin: RecipeSource) -> int | None:
    """Return the size of the draft vocabulary, or None for the target's."""
    size, whole = written.vocabulary, target.facts.vocabulary_size
    if size is not None and not training.vocabulary:
        expected = f"nothing: drafters of kind {kind} have the target's vocabulary"
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


def _drop(loss: LossPlan, kind: str, target: ModelPlan, origin: RecipeSource) -> Path | None:
    """Return the folder of `train.loss.drop`, or None. Raise RecipeError or CheckpointError if it is not a language
    model with the target's vocabulary."""
    if loss.drop is None:
        return None
    refuse_head(Path(loss.drop), kind)
    model = model_in(Path(loss.drop), loss.drop, PRECISION)
    check_vocabulary_match(target, model, "train.loss.drop", origin)
    return model.folder


def _check_features(data: DataPlan, loss: LossPlan, origin: RecipeSource) -> None:
    if data.features == "disk" and loss.contexts == "drafter":
        expected = "online: the target reads texts that the drafter writes anew"
        hint = "remove train.data.features, or take train.loss.contexts mixed"
        raise origin.refusal("train.data.features", "'disk' with train.loss.contexts drafter", expected, hint)


def _notes(features: str, taps: tuple[str, ...], target: ModelPlan, precision: str) -> tuple[str, ...]:
    if features != "disk":
        return ()
    size = feature_bytes(1, taps, target.facts.hidden_size or 0, precision)
    return (f"features on disk take {size / 1024:.3g} KiB a token: those of the taps, and of the final norm",)
