"""From the plan to the torch modules of the round, with their models loaded and probed."""

from speccompile.families import module_of
from speccompile.families.site import Site
from speccompile.models.load import load_model
from speccompile.models.probe import probe
from speccompile.progress import step
from speccompile.recipe import ModelPlan, Plan
from speccompile.step.decoder import CacheShape, Decoder
from speccompile.step.draft import Drafter
from speccompile.step.verify import Verify
from speccompile.step.verify.methods import make_acceptance
from speccompile.step.window import Branches, Chain
from speccompile.tree import ROOT, Tree, from_parents, merged


def cache_shape(plan: Plan) -> CacheShape:
    """Buffers hold the longest sequence, the widest window, and what a drafter reads ahead."""
    nodes = plan.drafter.tokens + 1
    return CacheShape(plan.batch_size, plan.max_length + max(plan.prefill_chunk, nodes) + nodes, plan.max_length)


def window_tree(plan: Plan) -> Tree | None:
    """The tree of all drafts of a round; None where the drafter makes it, or there is no drafter."""
    parents = plan.drafter.tree.parents
    if parents is None or not plan.drafter.tokens:
        return None
    tree = Tree(parents)
    return merged([tree] * len(plan.drafter.models)) if plan.drafter.kind == "models" else tree


def proof_tree(plan: Plan) -> Tree | None:
    """A tree that the window can hold: the round's own, or one with a long branch and many short ones."""
    if plan.drafter.tree.kind != "dynamic":
        return window_tree(plan)
    long = min(plan.drafter.tree.depth, plan.drafter.tokens)
    return from_parents([ROOT, *range(long), *[0] * (plan.drafter.tokens - long)])


def window_kind(plan: Plan) -> str:
    """ "chain", "static" or "dynamic": what the drafts of a round are together."""
    tree = window_tree(plan)
    return "static" if tree is not None and not tree.is_chain else plan.drafter.tree.kind


def make_verify(plan: Plan, decoder: Decoder) -> Verify:
    """The target's part of the round."""
    tree, nodes = window_tree(plan), plan.drafter.tokens + 1
    has_branches = window_kind(plan) != "chain"
    depth = tree.depth if tree else plan.drafter.tree.depth
    acceptance = make_acceptance(
        plan.verify.method, plan.verify.parameters, tree=tree, is_sampling=plan.decoding == "sampling",
        draws=plan.drafter.sample,
    )  # fmt: skip
    shape = Branches(tree, nodes, depth) if has_branches else Chain()
    return Verify(decoder, shape, acceptance, plan.drafter.head.taps if plan.drafter.head else ())


def make_drafter(plan: Plan) -> Drafter | None:
    """The drafter's part of the round, None without a drafter."""
    if not plan.drafter.tokens:
        return None
    drafter: Drafter = module_of(plan.drafter.kind, "drafter").make(site_of(plan))
    return drafter


def site_of(plan: Plan) -> Site:
    """Where the drafter of a plan, and its reference, find what they are made of."""
    return Site(plan, cache_shape(plan), load_decoder)


def load_decoder(model: ModelPlan, role: str, shape: CacheShape) -> Decoder:
    """The model behind the attention hook, known to go through it."""
    with step(f"loading the {role} and probing its attention"):
        return probe(load_model(model.folder, shape.max_length), shape)
