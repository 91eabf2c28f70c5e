"""From the plan to the torch modules of the round, with their models loaded and probed."""

from dataclasses import asdict, replace
from functools import partial
from typing import Any

from speccompile.compiler.build.cached_steps import CachedSteps, file_hashes
from speccompile.compiler.checkpoints.json_files import CONFIG
from speccompile.compiler.models.load import load_model
from speccompile.compiler.models.probe import probe, with_hook
from speccompile.compiler.step.attention import LayerAttention
from speccompile.compiler.step.decoder import CacheShape, Decoder
from speccompile.compiler.step.draft import Drafter
from speccompile.compiler.step.verify import Verify
from speccompile.compiler.step.verify.methods import make_acceptance
from speccompile.compiler.step.window import ChainLayout, TreeLayout
from speccompile.drafters import DRAFTING_METHODS, module_of
from speccompile.drafters.cascades import cascaded
from speccompile.drafters.context import DrafterContext
from speccompile.progress import log_step
from speccompile.recipe import ModelPlan, Plan
from speccompile.tree import ROOT, Tree, chain, from_parents, merged

_NODES = 16
"""Nodes of a window by which buffers grow."""
_SCRIPT = 8
"""Drafts by which the chain of a proof grows."""
_LONG_ENOUGH = 64
"""Positions that such a chain needs not to be most of."""


def cache_shape(plan: Plan) -> CacheShape:
    """Buffers hold the longest sequence, the widest window, and what a drafter reads ahead: for as many drafts as make
    whole steps, so that the target's graph stays the same when a few are added."""
    nodes = -(-(plan.drafter.tokens + 1) // _NODES) * _NODES
    return CacheShape(plan.batch_size, plan.max_length + max(plan.prefill_chunk, nodes) + nodes, plan.max_length)


def window_tree(plan: Plan) -> Tree | None:
    """The tree of all drafts of a round; None where the drafter makes it, or there is no drafter."""
    parents = plan.drafter.tree.parents
    if parents is None or not plan.drafter.tokens:
        return None
    tree = Tree(parents)
    return merged([tree] * len(plan.drafter.models)) if len(plan.drafter.models) > 1 else tree


def script_tree(plan: Plan) -> Tree | None:
    """How drafts follow each other where the graphs are driven for the proof: as in a round. Where the target's graph
    takes any chain, one of whole steps, so that its proof stays the same when a few drafts are added."""
    tree = proof_tree(plan)
    if tree is None or not is_chain_independent(plan) or plan.max_length < _LONG_ENOUGH:
        return tree
    return chain(-(-tree.drafts // _SCRIPT) * _SCRIPT)


def is_chain_independent(plan: Plan) -> bool:
    """Whether the target's graph is the same whatever is drafted: it compares what it is given with its own choices."""
    is_plain = plan.decoding == "greedy" and plan.verify.method == "exact" and not plan.drafter.successors
    return tree_kind(plan) == "chain" and is_plain


def proof_tree(plan: Plan) -> Tree | None:
    """A tree that the window can hold: the round's own, or one with a long branch and many short ones."""
    if plan.drafter.tree.kind != "dynamic":
        return window_tree(plan)
    long = min(plan.drafter.tree.depth, plan.drafter.tokens)
    return from_parents([ROOT, *range(long), *[0] * (plan.drafter.tokens - long)])


def tree_kind(plan: Plan) -> str:
    """ "chain", "static" or "dynamic": what the drafts of a round are together."""
    tree = window_tree(plan)
    return "static" if tree is not None and not tree.is_chain else plan.drafter.tree.kind


def make_verify(plan: Plan, decoder: Decoder) -> Verify:
    """The target's part of the round."""
    tree, nodes = window_tree(plan), plan.drafter.tokens + 1
    has_branches = tree_kind(plan) != "chain"
    depth = tree.depth if tree else plan.drafter.tree.depth
    acceptance = make_acceptance(
        plan.verify.method, plan.verify.parameters, tree=tree, is_sampling=plan.decoding == "sampling",
        draws=plan.drafter.sample,
    )  # fmt: skip
    shape = TreeLayout(tree, nodes, depth) if has_branches else ChainLayout()
    taps = plan.drafter.head.taps if plan.drafter.head else ()
    return Verify(decoder, shape, acceptance, taps, plan.drafter.successors)


def drafts_in_graph(plan: Plan) -> bool:
    """Whether there are drafts, and they do not come from the host."""
    return plan.drafter.tokens > 0 and not DRAFTING_METHODS[plan.drafter.kind].drafts_on_host


def make_drafter(plan: Plan, steps: CachedSteps | None = None) -> Drafter | None:
    """The drafter's part of the round, None where no graph drafts."""
    if not drafts_in_graph(plan):
        return None
    site = drafter_context(plan, steps)
    return cascaded(module_of(plan.drafter.kind, "drafter").make(site), plan, site.shape)


def drafter_context(plan: Plan, steps: CachedSteps | None = None) -> DrafterContext:
    """Where the drafter of a plan, and its reference, find what they are made of."""
    own = replace(plan, drafter=plan.drafter.own)
    return DrafterContext(own, cache_shape(plan), partial(load_decoder, steps=steps or CachedSteps()))


def load_decoder(model: ModelPlan, role: str, shape: CacheShape, steps: CachedSteps) -> Decoder:
    """The model behind the attention hook, known to go through it."""
    loaded, probed = load_model(model.folder, shape.max_length), list[Decoder]()

    def find() -> list[dict[str, Any]]:
        with log_step(f"loading the {role} and probing its attention"):
            probed.append(probe(loaded, shape))
        return [asdict(layer) for layer in probed[0].layers]

    key = {"model": model_key(model), "max_length": shape.max_length}
    found = steps.result(f"probing the attention of the {role}", key, find)
    return probed[0] if probed else with_hook(loaded, [LayerAttention.from_json(each) for each in found], shape)


def drafter_key(plan: Plan) -> dict[str, Any]:
    """What a drafter is made from, by the plan and by the content of all files; with the target, which it may read."""
    drafter = plan.drafter
    made = drafter.to_json() | {"models": [model_key(model) for model in drafter.models]}
    if drafter.head is not None:
        made["head"] = drafter.head.to_json() | dict.fromkeys(("reference", "revision", "commit", "precision"))
        made["head"]["files"] = file_hashes(drafter.head.folder, drafter.head.files)
    # What it reads of a target that it is no part of is the number of its tokens.
    reads = drafter.head is not None or drafter.layers
    return made | {"target": model_key(plan.target) if reads else plan.target.facts.vocabulary_size}


def model_key(model: ModelPlan) -> dict[str, str]:
    """What a model is made from: the content of its config and its weights, by file."""
    return file_hashes(model.folder, [CONFIG, *(file for file in model.files if file.suffix == ".safetensors")])
