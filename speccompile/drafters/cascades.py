"""Make the modules that look up draft tokens together with a drafter, or for it, from its part of the plan."""

from speccompile.compiler.step.decoder import CacheShape
from speccompile.compiler.step.draft import Drafter
from speccompile.compiler.step.draft.cascade import HostFillableDrafter, LookupGate, LookupTail
from speccompile.compiler.step.draft.language import DecoderReader
from speccompile.compiler.step.draft.lookup import Lookup
from speccompile.compiler.step.draft.network import DraftNetwork
from speccompile.compiler.step.draft.vertical import VerticalCascade
from speccompile.plan.plan import DrafterPlan, InnerPlan, LookupPlan
from speccompile.tree import Tree, chain


def make_lookup(plan: LookupPlan | InnerPlan, tree: Tree | None = None) -> Lookup:
    """Return a lookup that fills `tree`, by default a chain of `plan.tokens`."""
    return Lookup(tree or chain(plan.tokens), plan.ngram)


def cascaded(drafter: Drafter, plan: DrafterPlan, vocabulary: int, shape: CacheShape) -> Drafter:
    """Wrap a drafter in the tail and the gate of its planned cascade. vocabulary: number of tokens of the target."""
    cascade, text = plan.cascade, _text(shape)
    if cascade is None:
        return drafter
    if cascade.then is not None:
        drafter = LookupTail(drafter, make_lookup(cascade.then), text, vocabulary)
    if cascade.gate is not None and cascade.gate.by_host:
        return HostFillableDrafter(drafter, plan.tokens)
    if cascade.gate is not None:
        assert drafter.shape is not None, "the plan refuses gates beside trees that the drafter makes"
        lookup = make_lookup(cascade.gate, None if drafter.shape.is_chain else drafter.shape)
        drafter = LookupGate(drafter, lookup, cascade.gate.match, text, vocabulary)
    return drafter


def drafted_for(reader: DraftNetwork, tokens: int, inner: InnerPlan, shape: CacheShape) -> Drafter:
    """Return the drafter of a chain by a language model whose own draft tokens come from a lookup."""
    assert isinstance(reader, DecoderReader), "the plan refuses it for others"
    return VerticalCascade(reader, tokens, make_lookup(inner), inner.passes, _text(shape), inner.lenience)


def _text(shape: CacheShape) -> tuple[int, int]:
    return shape.batch_size, shape.rows
