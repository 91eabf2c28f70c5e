"""Drafts against eager torch: of a language model, by transformers; of a head, by its formula without caches; of a
drafter without weights, by its module."""

from typing import Any

from speccompile.builder.modules import make_drafter, site_of
from speccompile.families import FAMILIES, HEADS, module_of
from speccompile.prove import drafts
from speccompile.prove import graphs as graph_proof
from speccompile.prove.script import Driven
from speccompile.recipe import Plan
from speccompile.tree import Tree


def reads_target(plan: Plan) -> bool:
    """Whether a draft can only be judged behind the target's own graph, whose features or caches it reads."""
    return plan.drafter.kind in HEADS or plan.drafter.reads_caches


def check_draft(plan: Plan, driven: Driven) -> dict[str, Any]:
    """What a graph drafted, against the drafter itself: a row of the proof. Raises ProofError."""
    if plan.drafter.ngram is not None:
        return _check_lookup(plan, driven)
    reference = module_of(plan.drafter.kind, "reference")
    teachers: list[drafts.Teacher] = reference.teachers(site_of(plan))
    tree, max_length = plan.drafter.tree, plan.max_length
    if tree.parents is None:
        assert tree.top_k is not None
        return drafts.check_dynamic(driven, teachers[0], tree.depth, tree.top_k, max_length)
    fallback = plan.verify.parameters.get("fallback", plan.drafter.threshold)
    shape, late = Tree(tree.parents), int(FAMILIES[plan.drafter.kind].keeps_unsure)
    sure = reference.confidences(site_of(plan)) if hasattr(reference, "confidences") else None
    return drafts.check_tree(driven, teachers, shape, max_length, fallback, late, sure)


def _check_lookup(plan: Plan, driven: Driven) -> dict[str, Any]:
    drafter = make_drafter(plan)
    assert drafter is not None
    expected = graph_proof.module_drafts(drafter, driven)
    got = [
        {name: each for name, each in output.items() if name in wanted}
        for output, wanted in zip(driven.outputs, expected, strict=True)
    ]
    return graph_proof.check_exact(got, expected, driven.graph.name, driven.level)
