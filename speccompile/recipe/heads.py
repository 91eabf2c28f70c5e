"""Decide the head of the section `drafter`: its folder, taps, switches and number of drafts."""

from dataclasses import replace

from speccompile.drafters.find import read_head
from speccompile.plan.head import HeadPlan, HeadRequest, HeadTarget
from speccompile.plan.plan import DrafterPlan, ModelPlan, TreePlan
from speccompile.plan.recipe_source import RecipeSource
from speccompile.recipe.resolve import resolve_folder
from speccompile.recipe.schema import Drafter, Precision, Recipe, TreeMapping
from speccompile.recipe.trees import KEY, decide_tree
from speccompile.tree import MOST_DEPTH


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
    if isinstance(written.tree, TreeMapping) and written.tree.kind is not None:
        draft = replace(draft, tree=_best_nodes_tree(draft, written.tree, head, origin))
    check_reach(draft, head.tokens, f"the head in {head.folder}", origin, is_chain=written.tree is None)
    return replace(draft, head=head)


def _best_nodes_tree(draft: DrafterPlan, written: TreeMapping, head: HeadPlan, origin: RecipeSource) -> TreePlan:
    """Return the plan of a tree of the best nodes, by default as deep as the head drafts. Raise RecipeError for more
    nodes than the tokens after one."""
    if draft.tokens > head.draft_vocabulary_size:
        expected = f"at most {head.draft_vocabulary_size}, the tokens among which the head drafts"
        raise origin.refusal(f"{KEY}.nodes", str(draft.tokens), expected, f"lower {KEY}.nodes")
    depth = written.depth or min(draft.tokens, head.tokens or MOST_DEPTH, MOST_DEPTH)
    return replace(draft.tree, depth=depth)


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
