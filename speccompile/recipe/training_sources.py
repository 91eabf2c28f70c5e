"""Refusals of trainings for a target with an encoder, whose samples are sources and their answers."""

from speccompile.drafters import DRAFTING_METHODS
from speccompile.plan.plan import ModelPlan
from speccompile.plan.recipe_source import RecipeSource, format_value, one_of
from speccompile.plan.training_plan import BUNDLE, GIVEN, PROMPTS, DataPlan, LossPlan


def check_source_kind(kind: str, target: ModelPlan, origin: RecipeSource) -> None:
    """Raise RecipeError for a drafting method that cannot be trained for a target with an encoder."""
    if target.facts.source is None:
        return
    learning = [
        each
        for each, method in DRAFTING_METHODS.items()
        if method.reads_sources and method.training is not None and method.training.source_sizes is not None
    ]
    if kind not in learning:
        received = f"'{kind}' for '{target.reference}', which has an encoder"
        raise origin.refusal("drafter.kind", received, one_of(learning), "choose one of these kinds")


def check_source_begin(model: ModelPlan, target: ModelPlan, origin: RecipeSource) -> None:
    """Raise RecipeError unless the initial drafter and the target both have an encoder, or neither has one."""
    words = ["no encoder" if each.facts.source is None else "an encoder" for each in (model, target)]
    if words[0] != words[1]:
        received = f"'{model.reference}', which has {words[0]}"
        raise origin.refusal("train.begin", received, f"a model with {words[1]}, as the target", "give another drafter")


def check_source_data(data: DataPlan, loss: LossPlan, target: ModelPlan, origin: RecipeSource) -> None:
    """Raise RecipeError for data without sources and answers, and for losses over texts that the drafter writes."""
    if target.facts.source is None:
        return
    who = f"for '{target.reference}', which has an encoder"
    for key, received, expected in (
        ("data.kind", data.kind, (PROMPTS,)),
        ("data.answers.by", data.answers, (BUNDLE, GIVEN)),
        ("data.features", data.features, ("online",)),
        ("loss.contexts", loss.contexts, ("target",)),
    ):
        if received not in expected:
            raise origin.refusal(
                f"train.{key}", f"{format_value(received)} {who}", one_of(expected), f"set train.{key} to {expected[0]}"
            )
    if loss.drop is not None:
        raise origin.refusal("train.loss.drop", f"a value {who}", "none", "remove train.loss.drop")
