"""Check drafts against eager torch: a language model's by transformers; a head's by its formula without caches. Those
of a drafter without weights, and of lookups, by plain Python; the former also by its module, with its states."""

from typing import Any

from speccompile.compiler.build.modules import drafter_context, make_drafter
from speccompile.compiler.prove import drafts
from speccompile.compiler.prove import graphs as graph_proof
from speccompile.compiler.prove.best_nodes import check_best_nodes
from speccompile.compiler.prove.lookups import CascadeView, DraftedFor, Lookup, check_drafted_for
from speccompile.compiler.prove.plain_drafts import PlainDrafter, check_plain
from speccompile.compiler.prove.schedule_runs import Recording
from speccompile.drafters import DRAFTING_METHODS, TARGET_SPECIFIC_KINDS, has_module, module_of
from speccompile.drafters.context import DraftInputs
from speccompile.drafters.method import NOTHING
from speccompile.plan.plan import DrafterPlan, InnerPlan, LookupPlan
from speccompile.tree import Tree, chain


def reads_target(drafter: DrafterPlan) -> bool:
    """Return whether drafts can only be checked together with the target's graph, whose features, caches or choices the
    drafter reads."""
    return drafter.kind in TARGET_SPECIFIC_KINDS or drafter.layers is not None or drafter.successors > 0


def check_draft(inputs: DraftInputs, driven: Recording) -> dict[str, Any]:
    """Check a graph's drafts against the drafter itself, and return a row of the proof. Raise ProofError."""
    drafter, max_length = inputs.drafter, inputs.shape.max_length
    method = DRAFTING_METHODS[drafter.kind]
    if method.weights == NOTHING:
        return _check_module(inputs, driven)
    reference, context = module_of(drafter.kind, "reference"), drafter_context(inputs)
    teachers: list[drafts.ReferenceLogits] = reference.teachers(context)
    own, view = drafter.own, _view(drafter)
    tree = own.tree
    if tree.parents is None:
        if tree.top_k is None:
            return check_best_nodes(driven, teachers[0], tree.depth, max_length)
        return drafts.check_dynamic(driven, teachers[0], tree.depth, tree.top_k, max_length)
    if own.inner is not None:
        inner = DraftedFor(_lookup(own.inner), own.inner.passes, own.inner.lenience)
        return check_drafted_for(driven, teachers[0], inner, own.tokens, max_length, view)
    fallback = drafter.threshold if inputs.fallback is None else inputs.fallback
    shape, late = Tree(tree.parents), int(method.verifies_low_confidence)
    sure = reference.confidences(context) if hasattr(reference, "confidences") else None
    return drafts.check_tree(driven, teachers, shape, max_length, fallback, late, sure, view)


def _view(drafter: DrafterPlan) -> drafts.CaseFilter | None:
    """Return the filter that selects a drafter's own drafts, None if there are no other drafts."""
    cascade = drafter.cascade
    if cascade is None:
        return None
    own = Tree(cascade.tree.parents or ())
    then = None if cascade.then is None else _lookup(cascade.then)
    if cascade.gate is None or cascade.gate.by_host:  # host drafts are not part of this check
        return CascadeView(own, then, None)
    gate = _lookup(cascade.gate, None if own.is_chain else own)
    return CascadeView(own, then, gate)


def _lookup(plan: LookupPlan | InnerPlan, tree: Tree | None = None) -> Lookup:
    return Lookup(tree or chain(plan.tokens), plan.ngram, plan.match if isinstance(plan, LookupPlan) else 1)


def _check_module(inputs: DraftInputs, driven: Recording) -> dict[str, Any]:
    kind, compared = inputs.drafter.kind, 0
    if has_module(kind, "reference"):
        reference: PlainDrafter = module_of(kind, "reference").drafter(drafter_context(inputs))
        compared = check_plain(driven, reference)
    expected = graph_proof.module_drafts(make_drafter(inputs), driven)
    got = [
        {name: each for name, each in output.items() if name in wanted}
        for output, wanted in zip(driven.outputs, expected, strict=True)
    ]
    row = graph_proof.check_exact(got, expected, driven.graph.name, driven.level)
    return row | {"values": row["values"] + compared}
