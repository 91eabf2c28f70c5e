"""Drafts against eager torch: of a language model, by transformers; of a drafter without weights, by its module."""

from typing import Any

from speccompile.builder.modules import make_drafter
from speccompile.contract import Graph
from speccompile.models.load import load_model
from speccompile.prove import drafts
from speccompile.prove import graphs as graph_proof
from speccompile.prove.script import Outputs, Script
from speccompile.recipe import Plan
from speccompile.tree import Tree


def check_draft(plan: Plan, outputs: Outputs, script: Script, graph: Graph) -> list[dict[str, Any]]:
    """What a driven `draft`, or `step`, gave for the script, against the drafter itself. Raises ProofError."""
    if plan.drafter.ngram is not None:
        return [_check_lookup(plan, outputs, script)]
    teachers = _teachers(plan)
    tree, max_length = plan.drafter.tree, plan.max_length
    if tree.parents is None:
        assert tree.top_k is not None
        return [drafts.check_dynamic(outputs, script, graph, teachers[0], tree.depth, tree.top_k, max_length)]
    fallback = plan.verify.parameters.get("fallback")
    return [drafts.check_tree(outputs, script, graph, teachers, Tree(tree.parents), max_length, fallback)]


def _teachers(plan: Plan) -> list[drafts.Teacher]:
    if plan.drafter.layers:
        model = load_model(plan.target.folder, plan.max_length)
        skipped = sorted(set(range(model.config.num_hidden_layers)) - set(plan.drafter.layers))
        return [drafts.teacher(model, skipped)]
    return [drafts.teacher(load_model(each.folder, plan.max_length)) for each in plan.drafter.models]


def _check_lookup(plan: Plan, outputs: Outputs, script: Script) -> dict[str, Any]:
    drafter = make_drafter(plan)
    assert drafter is not None
    expected = graph_proof.module_drafts(drafter, script)
    got = [
        {name: each for name, each in output.items() if name in wanted}
        for output, wanted in zip(outputs, expected, strict=False)
    ]
    return graph_proof.check_exact(got, expected, "draft", "neutral against eager")
