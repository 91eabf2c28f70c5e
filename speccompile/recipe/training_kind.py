"""Decide the kind that is trained, and check that it can be trained for this target."""

from speccompile.drafters import DRAFTING_METHODS, kind_near
from speccompile.drafters.find import AUTO, find_kind
from speccompile.drafters.method import MASKS, NOTHING, TARGET, Training
from speccompile.plan.plan import ModelPlan
from speccompile.plan.recipe_source import RecipeSource, format_value, one_of
from speccompile.recipe.initial_drafter import BeginSource
from speccompile.recipe.resolve import resolve_folder
from speccompile.recipe.schema import Drafter, Recipe


def training_kind(recipe: Recipe) -> str:
    """Return the kind to train: the recipe's, or that of the folder at `train.begin`. Raise RecipeError."""
    written, origin = recipe.drafter or Drafter(), recipe.origin
    if written.kind not in (None, AUTO):
        if written.kind in DRAFTING_METHODS:
            return written.kind
        guess = kind_near(written.kind)
        hint = f"did you mean '{guess}'?" if guess else f"one of {', '.join(trainable())}"
        raise origin.refusal(
            "drafter.kind", f"{format_value(written.kind)}, which is unknown", "a kind that can be trained", hint
        )
    begin = recipe.train.begin if recipe.train else None
    if begin is None:
        hint = f"set it to {one_of(trainable())}"
        raise origin.refusal("drafter.kind", format_value(written.kind), "the kind of the new drafter", hint)
    return find_kind(resolve_folder("train.begin", begin, None, BeginSource.of(origin), heads=True)[0])


def trainable() -> list[str]:
    """Return the kinds that can be trained."""
    return [kind for kind in DRAFTING_METHODS if training_of(kind) is not None]


SEVERAL = tuple(kind for kind, method in DRAFTING_METHODS.items() if method.trains_as)
"""Kinds with several models, of which one is trained at a time."""


def trained_as(kind: str) -> str:
    """Return the kind of the trained drafter: for a kind with several models, the kind of one of them."""
    return DRAFTING_METHODS[kind].trains_as or kind


def training_of(kind: str) -> Training | None:
    """Return the training of a kind, or None if it cannot be trained."""
    return DRAFTING_METHODS[trained_as(kind)].training


_WHY_NOT = {
    NOTHING: "it has no weights: what it drafts, it looks up",
    TARGET: "it drafts with the target's own weights, which stay as they are",
}
"""`weights` of a drafting method -> why it cannot be trained."""


def find_training(kind: str, origin: RecipeSource) -> Training:
    """Return the training of a kind. Raise RecipeError with the reason if it cannot be trained."""
    training = training_of(kind)
    if training is not None:
        return training
    why = _WHY_NOT.get(
        DRAFTING_METHODS[kind].weights, "its training is not here yet, only the reading of published ones"
    )
    if not DRAFTING_METHODS[kind].drafts:
        why = "there is no drafter"
    raise origin.refusal(
        "drafter.kind", f"'{kind}', which cannot be trained: {why}", one_of(trainable()), "choose one of these kinds"
    )


def check_masks(kind: str, target: ModelPlan, origin: RecipeSource) -> None:
    """Raise RecipeError for trained mask rows with a target that has recurrent state: one pass trains them after every
    position of a text, and a recurrent state exists at one position only."""
    if DRAFTING_METHODS[kind].weights == MASKS and target.facts.states:
        received = f"'{kind}', but the target '{target.reference}' carries states from token to token"
        expected = f"a target of attention alone ({target.facts.states})"
        raise origin.refusal("drafter.kind", received, expected, "set drafter.kind to eagle3, or to another head")
