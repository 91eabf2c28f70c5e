"""Check the loss of a training before any work."""

from speccompile.drafters import DRAFTING_METHODS
from speccompile.plan.recipe_source import RecipeSource, format_value, one_of
from speccompile.plan.training_plan import LossPlan

LOSSES = ("ce", "fkl", "rkl", "jsd", "tvd", "nla", "hybrid")
DEPTH_WEIGHTS = ("decay", "dpace")
CONTEXTS = ("target", "drafter", "mixed")

KINDS_WITH_OWN_TEXT = frozenset(
    kind for kind, method in DRAFTING_METHODS.items() if method.training is not None and method.training.own_text
)
"""Kinds that read tokens alone, and so can continue a prompt without the target."""


def check_loss(loss: LossPlan, kind: str, packing: str, origin: RecipeSource) -> None:
    """Raise RecipeError for a loss that does not work with this kind of drafter, or that would not improve it.

    `decide_loss` and the schema check names and ranges. packing: as in `DataPlan`.
    """
    if loss.contexts != "target":
        _check_own_text(loss, kind, packing, origin)
    if loss.drop is not None and packing == "packed":
        raise origin.refusal(
            "train.loss.drop",
            f"{format_value(loss.drop)} with train.data.packing packed",
            "no folder: a packed row may hold texts that are reproduced beside texts that are not",
            "take train.data.packing buckets, or remove train.loss.drop",
        )
    if loss.kind == "ce" and loss.hard > 0:
        raise origin.refusal(
            "train.loss.hard",
            f"{format_value(loss.hard)} with train.loss.kind ce",
            "0: cross entropy goes towards the text's token, whatever the target thinks",
            "remove train.loss.hard, or take train.loss.kind fkl",
        )
    if loss.kind == "rkl" and loss.hard == 1:
        raise origin.refusal(
            "train.loss.hard",
            "1 with train.loss.kind rkl",
            "less than 1: the reverse divergence from a single token is infinite",
            "lower train.loss.hard, or take train.loss.kind fkl",
        )


def _check_own_text(loss: LossPlan, kind: str, packing: str, origin: RecipeSource) -> None:
    key, received = "train.loss.contexts", format_value(loss.contexts)
    if kind not in KINDS_WITH_OWN_TEXT:
        raise origin.refusal(
            key,
            f"{received} for a drafter of kind {kind}",
            f"target: drafters of kind {one_of(sorted(KINDS_WITH_OWN_TEXT))} alone write texts of their own, others "
            "read the target's features",
            "remove train.loss.contexts",
        )
    if loss.kind == "ce":
        raise origin.refusal(
            key,
            f"{received} with train.loss.kind ce",
            "target: cross entropy towards tokens that the drafter wrote teaches it what it says already",
            f"take train.loss.kind {one_of([each for each in LOSSES if each != 'ce'])}, or remove {key}",
        )
    if packing == "packed":
        raise origin.refusal(
            key,
            f"{received} with train.data.packing packed",
            "target: a packed row of several texts has no single prompt to continue",
            "take train.data.packing buckets",
        )
