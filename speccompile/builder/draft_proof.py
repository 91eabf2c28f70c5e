"""Drafts against eager torch: of a language model, by transformers; of a drafter without weights, by its module."""

from typing import Any

from speccompile.builder.modules import make_drafter
from speccompile.models.load import load_model
from speccompile.prove import drafts
from speccompile.prove import graphs as graph_proof
from speccompile.prove.script import Driven
from speccompile.recipe import Plan
from speccompile.tree import Tree


def check_draft(plan: Plan, driven: Driven) -> dict[str, Any]:
    """What a graph drafted, against the drafter itself: a row of the proof. Raises ProofError."""
    if plan.drafter.ngram is not None:
        return _check_lookup(plan, driven)
    teachers = _teachers(plan)
    tree, max_length = plan.drafter.tree, plan.max_length
    if tree.parents is None:
        assert tree.top_k is not None
        return drafts.check_dynamic(driven, teachers[0], tree.depth, tree.top_k, max_length)
    fallback = plan.verify.parameters.get("fallback")
    return drafts.check_tree(driven, teachers, Tree(tree.parents), max_length, fallback)


def _teachers(plan: Plan) -> list[drafts.Teacher]:
    if plan.drafter.layers:
        model = load_model(plan.target.folder, plan.max_length)
        skipped = sorted(set(range(model.config.num_hidden_layers)) - set(plan.drafter.layers))
        return [drafts.teacher(model, skipped)]
    return [drafts.teacher(load_model(each.folder, plan.max_length)) for each in plan.drafter.models]


def _check_lookup(plan: Plan, driven: Driven) -> dict[str, Any]:
    drafter = make_drafter(plan)
    assert drafter is not None
    expected = graph_proof.module_drafts(drafter, driven)
    got = [
        {name: each for name, each in output.items() if name in wanted}
        for output, wanted in zip(driven.outputs, expected, strict=True)
    ]
    return graph_proof.check_exact(got, expected, driven.graph.name, driven.level)
