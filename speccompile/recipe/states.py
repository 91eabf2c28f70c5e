"""Check the limits of models with recurrent state: they cannot process a token twice or undo one.

This module makes all such checks that do not need the weights. It refuses a tree for a drafter with recurrent state,
because every branch would need a separate state. For a target it refuses draft tokens that are no tree of one drafter,
and a tree of the target's own weights. It refuses a fused round whose prefill chunk would begin with the previous
chunk's last token.
"""

from speccompile.drafters import DRAFTING_METHODS, KINDS_SHARING_TARGET_WEIGHTS
from speccompile.drafters.method import Incompatibility
from speccompile.plan.plan import DrafterPlan, ModelPlan
from speccompile.plan.recipe_source import RecipeSource
from speccompile.recipe.schema import Recipe

CHAINS = "a chain, in which each token follows one"


def graphs_beside(target: ModelPlan, recipe: Recipe, graphs: str) -> str:
    """Return `graphs`, or by default "separate" if the target has recurrent state or an encoder."""
    apart = target.facts.states or target.facts.source is not None
    return "separate" if apart and recipe.graphs is None else graphs


def check_states(recipe: Recipe, target: ModelPlan, draft: DrafterPlan, graphs: str) -> None:
    """Raise RecipeError if the recurrent state of the target, or of a draft model, does not allow the plan."""
    if target.facts.states:
        _check_target(recipe, target, draft, graphs)
    for model in draft.models:
        if model.facts.states:
            _check_drafter(recipe.origin, model, draft)


def _check_target(recipe: Recipe, target: ModelPlan, draft: DrafterPlan, graphs: str) -> None:
    origin = recipe.origin
    about = f"the target '{target.reference}' carries states from token to token ({target.facts.states})"
    key, hint = _blamed(recipe, draft)
    if draft.tree.kind != "chain" or len(draft.models) > 1:
        _check_tree(draft, key, hint, about, origin)
    if graphs == "fused" and DRAFTING_METHODS[draft.kind].pairs_next_token:
        received = f"'fused', but {about}, and drafter.kind {draft.kind} would have to be given some tokens twice"
        raise origin.refusal("graphs", received, "'separate'", "set graphs to separate, or remove it")
    _check_kind(draft.kind, DRAFTING_METHODS[draft.kind].target_states, about, origin)


def _check_tree(draft: DrafterPlan, key: str, hint: str, about: str, origin: RecipeSource) -> None:
    """Raise RecipeError for a tree whose paths the target's states cannot move along."""
    if draft.kind in KINDS_SHARING_TARGET_WEIGHTS:
        received = f"a tree of drafter.kind {draft.kind}, whose drafts move on the same states, but {about}"
        raise origin.refusal(key, received, CHAINS, hint)
    if draft.lookahead is not None or len(draft.models) > 1:
        expected = f"a tree of one drafter, such as drafter.tree [2, 2], or {CHAINS}"
        raise origin.refusal(key, f"draft tokens that are no tree of one drafter, but {about}", expected, hint)


def _blamed(recipe: Recipe, draft: DrafterPlan) -> tuple[str, str]:
    """Return the key that causes the tree, and a hint that changes it to a chain."""
    if recipe.drafter is not None and recipe.drafter.nodes is not None:
        return "drafter.nodes", "set drafter.tree to chain, and remove drafter.nodes"
    if len(draft.models) > 1:
        return "drafter.kind", "set drafter.kind to model: drafts of several models are siblings"
    if draft.lookahead is not None:
        return "drafter.kind", "set drafter.kind to jacobi, or to another that drafts a chain"
    return "drafter.tree", "set drafter.tree to chain"


def _check_kind(kind: str, refused: Incompatibility | None, about: str, origin: RecipeSource) -> None:
    if refused is not None:
        hint = f"set drafter.kind to {refused.instead}, or take another drafter"
        raise origin.refusal("drafter.kind", f"'{kind}', {refused.reason}, but {about}", refused.instead, hint)


def _check_drafter(origin: RecipeSource, model: ModelPlan, draft: DrafterPlan) -> None:
    about = f"the drafter '{model.reference}' carries states from token to token ({model.facts.states})"
    if draft.own.tree.kind != "chain":
        raise origin.refusal("drafter.tree", f"a tree, but {about}", CHAINS, "set drafter.tree to chain")
    _check_kind(draft.kind, DRAFTING_METHODS[draft.kind].own_states, about, origin)
    if draft.inner is not None:
        received = f"{draft.inner.kind}, whose draft tokens the drafter would take back, but {about}"
        raise origin.refusal("drafter.drafter", received, "nothing", "remove drafter.drafter")
