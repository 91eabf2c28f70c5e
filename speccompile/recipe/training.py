"""The section `train` -> TrainingPlan: decide every default, and make every check that needs no work."""

from pathlib import Path

from speccompile.compiler.checkpoints.gguf.conversion import GGUF_INDEX
from speccompile.drafters import DRAFTING_METHODS
from speccompile.drafters.find import refuse_head
from speccompile.plan.plan import DrafterPlan, ModelPlan
from speccompile.plan.recipe_source import RecipeSource
from speccompile.plan.training_plan import DataPlan, LossPlan, TrainingPlan
from speccompile.recipe.decide import decide_max_length, required_capabilities
from speccompile.recipe.drafter import decide_draft
from speccompile.recipe.engines import PRECISION, decide_engines
from speccompile.recipe.resolve import model_in, resolve_model
from speccompile.recipe.schema import Drafter, Recipe
from speccompile.recipe.states import check_states
from speccompile.recipe.training_data import decide_data, feature_bytes
from speccompile.recipe.training_drafter import TrainingRequest, decide_initial_drafter
from speccompile.recipe.training_kind import check_masks, find_training, trained_as, training_kind
from speccompile.recipe.training_output import check_output, check_work
from speccompile.recipe.training_parts import decide_evaluate, decide_loss, decide_save, decide_schedule, defaults_for
from speccompile.recipe.training_schema import Train
from speccompile.recipe.training_sources import check_source_data, check_source_kind
from speccompile.recipe.vocabulary_match import check_vocabulary_match


def plan_training(recipe: Recipe, work: Path | None = None) -> TrainingPlan:
    """Decide every default of a training, and raise an error for one that is not possible, before any work.

    work: the folder of data and checkpoints, build/<name>-train by default. Models with a Hub id are downloaded. Raise
    RecipeError; CheckpointError and UnsupportedModelError for the files of the target and of the initial drafter.
    """
    request = _read_request(recipe)
    written, target, origin = request.written, request.target, request.origin
    scale, output = defaults_for(target), _output(recipe, request.kind)
    begun = decide_initial_drafter(request)
    is_new, kind = begun.folder is None, trained_as(request.kind)
    schedule = decide_schedule(written.schedule, request.kind, request.training, scale, origin, is_new=is_new)
    data = decide_data(written.data, target, scale.length, scale.new_tokens, scale.passages, origin)
    loss = decide_loss(written.loss, request.kind, request.training, scale, data.packing, recipe)
    _check_features(data, loss, origin)
    check_source_data(data, loss, target, origin)
    work = work or Path("build") / f"{recipe.name}-train"
    read = {"train.begin": begun.folder, "target.model": target.folder, "train.loss.drop": _drop(loss, kind, request)}
    check_output(output, read, work, origin)
    check_work(work)
    plan = TrainingPlan(
        name=recipe.name,
        kind=kind,
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
        evaluate=decide_evaluate(written, request.draft, begun.limit, scale, origin),
        save_every=scale.save_every,
        keep=2,
        dtype=scale.dtype,
        seed=written.seed or 0,
        notes=(*begun.notes, *_notes(data.features, begun.taps, target, schedule.precision)),
    )
    return decide_save(plan, written.save, scale, origin)


def _read_request(recipe: Recipe) -> TrainingRequest:
    """Return what the recipe asks to train, with the target's checkpoint read, and checked against the kind."""
    written, kind = _section(recipe), training_kind(recipe)
    training = find_training(kind, recipe.origin)
    draft, target = _decide_draft(recipe, kind), _target(recipe)
    check_states(recipe, target, draft, "separate")
    check_masks(kind, target, recipe.origin)
    check_source_kind(kind, target, recipe.origin)
    return TrainingRequest(recipe, written, kind, training, target, draft)


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


def _drop(loss: LossPlan, kind: str, request: TrainingRequest) -> Path | None:
    """Return the folder of `train.loss.drop`, or None. Raise RecipeError or CheckpointError if it is not a language
    model with the target's vocabulary."""
    if loss.drop is None:
        return None
    refuse_head(Path(loss.drop), kind)
    model = model_in(Path(loss.drop), loss.drop, PRECISION)
    check_vocabulary_match(request.target, model, "train.loss.drop", request.origin)
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
