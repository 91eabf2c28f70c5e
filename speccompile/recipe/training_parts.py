"""Decide loss, schedule, evaluation and saving of a training: defaults by the size of the target, and checks.

The defaults are those of published recipes (EAGLE-3's and SpecForge's). For targets that are small enough for a CPU,
they are those of the demo's drafters.
"""

from dataclasses import dataclass, replace

from speccompile.drafters import TARGET_SPECIFIC_KINDS
from speccompile.drafters.method import Training
from speccompile.plan.plan import DrafterPlan, ModelPlan
from speccompile.plan.recipe_source import RecipeSource, format_value, one_of
from speccompile.plan.training_plan import EvaluatePlan, LossPlan, SchedulePlan, TrainingPlan
from speccompile.recipe.decide import DECODING
from speccompile.recipe.schema import Recipe
from speccompile.recipe.training_kind import SEVERAL, trained_as
from speccompile.recipe.training_losses import CONTEXTS, DEPTH_WEIGHTS, LOSSES, check_loss
from speccompile.recipe.training_schema import Evaluate, Loss, Save, Schedule, Train

ADAMW, MUON = OPTIMIZERS = ("adamw", "muon")
PRECISIONS = ("float32", "bfloat16")
DTYPES = ("float32", "bfloat16", "float16")

BETA = 0.5  # of jsd: the symmetric one
DECAY = 0.8  # ratio of EAGLE-3's and Medusa's loss weights from one depth to the next
SHARE = 0.5  # of batches with texts that the drafter wrote: DistillSpec's mix
FINAL = 0.05  # share of the peak at the end of the cosine
ONE_TOKEN = 0.5  # share of the target's most probable token, the only one that greedy decoding accepts


@dataclass(frozen=True)
class TrainingDefaults:
    """Defaults by the size of the target. length, new_tokens: maximum tokens of a text and an answer. passages: number
    of prompts from plain texts. batch_size: texts per step. new_rate, old_rate: AdamW's learning rate for a new drafter
    and for a `train.begin`; muon: Muon's for the matrices of a new head, None for AdamW. warmup: (share of the steps,
    number of steps if the budget is time). anchors: maximum blocks per text. texts: of an evaluation; every: minimum
    seconds between evaluations. compiled: whether evaluations compile. save_every: seconds; dtype: of saved weights."""

    length: int
    new_tokens: int
    passages: int
    batch_size: int
    new_rate: float
    old_rate: float
    muon: float | None
    warmup: tuple[float, int]
    clip: float
    anchors: int
    texts: int
    compiled: bool
    every: float
    save_every: float
    precision: str
    dtype: str


TINY_BYTES = 2**28
"""Maximum weight bytes of a target that trains in minutes on a CPU: 64 million parameters in float32."""

SMALL = TrainingDefaults(
    length=256, new_tokens=128, passages=2048,
    batch_size=16, new_rate=1e-3, old_rate=1e-4, muon=6e-3, warmup=(0.05, 50), clip=1.0,
    anchors=24, texts=64, compiled=True, every=30.0, save_every=30.0, precision="float32",
    # the evaluated weights are the compiled ones, bit for bit, and they are small
    dtype="float32",
)  # fmt: skip
FULL_SIZE = TrainingDefaults(
    length=2048, new_tokens=1024, passages=50_000,
    batch_size=32, new_rate=1e-4, old_rate=2e-5, muon=None, warmup=(0.04, 200), clip=0.5,
    anchors=512, texts=256, every=600.0, save_every=600.0,
    # compiling a target of gigabytes takes longer than an interval: only on request
    compiled=False, precision="bfloat16", dtype="bfloat16",
)  # fmt: skip


def defaults_for(target: ModelPlan) -> TrainingDefaults:
    return SMALL if target.facts.weight_bytes <= TINY_BYTES else FULL_SIZE


def decide_loss(
    written: Loss | None, kind: str, training: Training, scale: TrainingDefaults, packing: str, recipe: Recipe
) -> LossPlan:
    """Return the plan of the loss. Raise RecipeError for keys that do not apply to the kind or to other keys."""
    loss, origin = written or Loss(), recipe.origin
    word = _word("loss.kind", loss.kind or "fkl", LOSSES, origin)
    weights = "dpace" if training.anchors else "decay"
    weights = _word("loss.depth_weights", loss.depth_weights or weights, DEPTH_WEIGHTS, origin)
    contexts = _word("loss.contexts", loss.contexts or "target", CONTEXTS, origin)
    is_even = training.is_depth_independent  # its logits of a position are the same at every depth
    _mean("loss.beta", loss.beta, word == "jsd", "train.loss.kind jsd", origin)
    _mean("loss.share", loss.share, contexts == "mixed", "train.loss.contexts mixed", origin)
    _mean("loss.anchors", loss.anchors, training.anchors > 0, "drafters whose blocks cost a pass each", origin)
    _mean("loss.drop", loss.drop, trained_as(kind) != kind, f"drafter.kind {one_of(SEVERAL)}", origin)
    _mean("loss.depth_weights", loss.depth_weights, not is_even, "drafters whose drafts depend on their depth", origin)
    _mean("loss.decay", loss.decay, weights == "decay" and not is_even, "train.loss.depth_weights decay", origin)
    plan = LossPlan(
        kind=word,
        beta=BETA if loss.beta is None else loss.beta,
        hard=_hard(word, recipe.decoding or DECODING) if loss.hard is None else loss.hard,
        depth_weights=weights,
        decay=loss.decay or training.depth_decay or DECAY,
        contexts=contexts,
        share=loss.share or SHARE,
        anchors=loss.anchors or min(training.anchors, scale.anchors),
        drop=_drop(loss, recipe),
    )
    check_loss(plan, trained_as(kind), packing, origin)
    return plan


def _hard(kind: str, decoding: str) -> float:
    """Return the default share of hard labels: greedy rounds accept only the target's most probable token, sampling
    rounds use the whole distribution."""
    return ONE_TOKEN if decoding == "greedy" and kind in ("fkl", "jsd", "hybrid") else 0.0


def _drop(loss: Loss, recipe: Recipe) -> str | None:
    if loss.drop is None:
        return None
    folder = recipe.origin.resolve(loss.drop)
    if not folder.is_dir():
        received = f"'{loss.drop}' (no folder lies at {folder})"
        raise recipe.origin.refusal(
            "train.loss.drop", received, "the drafter that was trained before", "train that one first"
        )
    return str(folder)


def _word(key: str, written: str, words: tuple[str, ...], origin: RecipeSource) -> str:
    if written in words:
        return written
    raise origin.refusal(f"train.{key}", format_value(written), one_of(words), f"set it to {words[0]}, or remove it")


def _mean(key: str, written: object, means: bool, where: str, origin: RecipeSource) -> None:
    """Raise RecipeError for a written key that does not apply."""
    if written is not None and not means:
        raise origin.refusal(
            f"train.{key}", "a key that means nothing for this training", f"it only with {where}", f"remove train.{key}"
        )


def decide_schedule(
    written: Schedule | None,
    kind: str,
    training: Training,
    scale: TrainingDefaults,
    origin: RecipeSource,
    *,
    is_new: bool,
) -> SchedulePlan:
    """Return the plan of the schedule. Raise RecipeError unless there is one budget, and for keys that do not apply."""
    schedule = written or Schedule()
    _check_budget(schedule, origin)
    muon = scale.muon if is_new and kind in TARGET_SPECIFIC_KINDS and training.learning_rate is None else None
    default = MUON if muon or schedule.matrix_rate else ADAMW
    optimizer = _word("schedule.optimizer", schedule.optimizer or default, OPTIMIZERS, origin)
    _mean("schedule.matrix_rate", schedule.matrix_rate, optimizer == MUON, "train.schedule.optimizer muon", origin)
    rate = schedule.learning_rate or ((training.learning_rate or scale.new_rate) if is_new else scale.old_rate)
    warmup = _warmup(schedule, scale, origin)
    batch_size, accumulate = schedule.batch_size or scale.batch_size, schedule.accumulate or 1
    if accumulate > batch_size:
        expected = f"at most {batch_size}, the texts of a step: a part has one or more"
        raise origin.refusal("train.schedule.accumulate", str(accumulate), expected, f"set it to {batch_size} or less")
    return SchedulePlan(
        steps=schedule.steps,
        seconds=schedule.seconds,
        batch_size=batch_size,
        accumulate=accumulate,
        optimizer=optimizer,
        learning_rate=rate,
        # Muon's steps are scaled to AdamW's, so AdamW's rate is its default.
        matrix_rate=(schedule.matrix_rate or muon or rate) if optimizer == MUON else None,
        weight_decay=(0.0 if kind in TARGET_SPECIFIC_KINDS else 0.1)
        if schedule.weight_decay is None
        else schedule.weight_decay,
        warmup=warmup,
        final=FINAL if schedule.final is None else schedule.final,
        clip=schedule.clip or scale.clip,
        precision=_word("schedule.precision", schedule.precision or scale.precision, PRECISIONS, origin),
        checkpointing=bool(schedule.checkpointing),
    )


def _check_budget(schedule: Schedule, origin: RecipeSource) -> None:
    if (schedule.steps is None) is (schedule.seconds is None):
        received = "steps and seconds" if schedule.steps else "no budget"
        hint = "remove one of the two" if schedule.steps else "for example `schedule: {seconds: 600}`"
        raise origin.refusal("train.schedule", received, "a budget: steps or seconds", hint)


def _warmup(schedule: Schedule, scale: TrainingDefaults, origin: RecipeSource) -> int:
    share, steps = scale.warmup
    if schedule.warmup is None:
        return round(share * schedule.steps) if schedule.steps else steps
    if schedule.steps is not None and schedule.warmup >= schedule.steps:
        expected = f"less than train.schedule.steps, which is {schedule.steps}"
        raise origin.refusal("train.schedule.warmup", str(schedule.warmup), expected, "lower it")
    return schedule.warmup


def decide_evaluate(
    written: Train, draft: DrafterPlan, limit: int | None, scale: TrainingDefaults, origin: RecipeSource
) -> EvaluatePlan:
    """Return the plan of the evaluation. limit: maximum number of consecutive drafts that the drafter can make, None
    for no limit. Raise RecipeError for a larger depth."""
    evaluate, schedule = written.evaluate or Evaluate(), written.schedule or Schedule()
    # A fifth of a time budget: a curve of five points, and training gets most of the time.
    every = max(scale.every, schedule.seconds / 5) if schedule.seconds else 10 * scale.every
    depth = evaluate.depth or draft.tree.depth
    if evaluate.depth is not None and limit is not None and depth > limit:
        expected = f"at most {limit}, which is how far the drafter drafts"
        raise origin.refusal("train.evaluate.depth", str(depth), expected, f"set it to {limit} or less")
    return EvaluatePlan(
        every=evaluate.every or every,
        texts=evaluate.texts or scale.texts,
        depth=depth if limit is None else min(depth, limit),
        compiled=scale.compiled if evaluate.compiled is None else evaluate.compiled,
        prompts=evaluate.prompts or 8,
        max_new_tokens=evaluate.max_new_tokens or 64,
    )


def decide_save(
    plan: TrainingPlan, written: Save | None, scale: TrainingDefaults, origin: RecipeSource
) -> TrainingPlan:
    """Return the plan with the settings of its checkpoints. The dialect is decided with the initial drafter."""
    save = written or Save()
    return replace(
        plan,
        save_every=save.every or scale.save_every,
        keep=save.keep or plan.keep,
        dtype=_word("save.dtype", save.dtype or scale.dtype, DTYPES, origin),
    )
