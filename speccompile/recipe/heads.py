"""Decide the head of the section `drafter`: its folder, taps, switches and number of drafts."""

from dataclasses import replace

from speccompile.drafters.find import read_head
from speccompile.plan.head import HeadRequest, HeadTarget
from speccompile.plan.plan import DrafterPlan, ModelPlan
from speccompile.plan.recipe_source import RecipeSource
from speccompile.recipe.resolve import resolve_folder
from speccompile.recipe.schema import Drafter, Precision, Recipe
from speccompile.recipe.trees import KEY, decide_tree


def decide_head(recipe: Recipe, target: ModelPlan, draft: DrafterPlan) -> DrafterPlan:
    """Return the plan with the recipe's head. The default number of drafts is the one that its publisher proposes.

    Raise CheckpointError for an invalid folder, RecipeError for a head of another target, and for more drafts than it
    can make.
    """
    written, origin = recipe.drafter or Drafter(), recipe.origin
    facts, folder, commit = target.facts, target.folder, target.commit
    reference, revision = target.reference, target.revision
    if written.model is None:  # the head lies among the target's tensors
        _refuse_revision(written, origin)
    else:
        reference, revision = written.model, written.revision
        folder, commit = resolve_folder("drafter", written.model, written.revision, origin, heads=True)
    sizes = (facts.vocabulary_size, facts.hidden_size, facts.layers)
    wanted = HeadTarget(target.reference, *sizes, target.folder)
    taps, switches = tuple(written.taps or ()), written.switches or {}
    request = HeadRequest(draft.kind, wanted, origin, taps, switches, written.threshold)
    head = read_head(folder, request)
    precision = (recipe.precision or Precision()).drafter or "float32"
    head = replace(head, reference=reference, revision=revision, commit=commit, precision=precision)
    if written.tree is None and written.tokens is None and (head.default_tokens or head.tokens):
        tokens = head.default_tokens or head.tokens
        tree, tokens = decide_tree(Drafter(tokens=tokens), 1, origin)
        draft = replace(draft, tree=tree, tokens=tokens)
    check_reach(draft, head.tokens, f"the head in {head.folder}", origin, is_chain=written.tree is None)
    return replace(draft, head=head)


def _refuse_revision(written: Drafter, origin: RecipeSource) -> None:
    if written.revision is not None:
        raise origin.refusal(
            "drafter.revision", f"'{written.revision}'", "no revision without drafter.model: it is the target's",
            "remove drafter.revision, or set target.revision",
        )  # fmt: skip


def check_reach(draft: DrafterPlan, reach: int | None, who: str, origin: RecipeSource, *, is_chain: bool) -> None:
    """Raise RecipeError for more consecutive drafts than `reach`, the maximum of `who`; None for no limit."""
    if reach is not None and draft.tree.depth > reach:
        key = "drafter.tokens" if is_chain else KEY
        received = f"{draft.tree.depth} drafts after one another"
        expected = f"at most {reach}, which is how far {who} drafts"
        raise origin.refusal(key, received, expected, f"set {key} to {reach} or less" if is_chain else "cut it")
