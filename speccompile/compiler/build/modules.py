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
"""Granularity of the buffers' growth, in nodes of a window."""
_SCRIPT = 8
"""Granularity of the growth of a proof's chain, in drafts."""
_LONG_ENOUGH = 64
"""Minimum cache.max_length, in positions, for a rounded chain: it must not fill most of them."""


def cache_shape(plan: Plan) -> CacheShape:
    """Return the shape of buffers for the longest sequence, the widest window, and the drafter's lookahead. The number
    of drafts is rounded up, so that the target's graph stays the same when a few are added."""
    nodes = -(-(plan.drafter.tokens + 1) // _NODES) * _NODES
    return CacheShape(plan.batch_size, plan.max_length + max(plan.prefill_chunk, nodes) + nodes, plan.max_length)


def window_tree(plan: Plan) -> Tree | None:
    """Return the tree of all drafts of a round; None if the drafter makes it, or if there is no drafter."""
    parents = plan.drafter.tree.parents
    if parents is None or not plan.drafter.tokens:
        return None
    tree = Tree(parents)
    return merged([tree] * len(plan.drafter.models)) if len(plan.drafter.models) > 1 else tree


def script_tree(plan: Plan) -> Tree | None:
    """Return the tree of the drafts in the proof's schedule, by default the round's. If the target's graph accepts any
    chain, a chain of rounded length, so that its proof stays the same when a few drafts are added."""
    tree = proof_tree(plan)
    if tree is None or not is_chain_independent(plan) or plan.max_length < _LONG_ENOUGH:
        return tree
    return chain(-(-tree.drafts // _SCRIPT) * _SCRIPT)


def is_chain_independent(plan: Plan) -> bool:
    """Return whether the target's graph is the same for all drafts: it compares its input with its own choices."""
    is_plain = plan.decoding == "greedy" and plan.verify.method == "exact" and not plan.drafter.successors
    return tree_kind(plan) == "chain" and is_plain


def proof_tree(plan: Plan) -> Tree | None:
    """Return a tree that the window can hold: the round's own, or one with a long branch and many short ones."""
    if plan.drafter.tree.kind != "dynamic":
        return window_tree(plan)
    long = min(plan.drafter.tree.depth, plan.drafter.tokens)
    return from_parents([ROOT, *range(long), *[0] * (plan.drafter.tokens - long)])


def tree_kind(plan: Plan) -> str:
    """Return "chain", "static" or "dynamic": the shape of a round's drafts."""
    tree = window_tree(plan)
    return "static" if tree is not None and not tree.is_chain else plan.drafter.tree.kind


def make_verify(plan: Plan, decoder: Decoder) -> Verify:
    """Return the target's part of the round."""
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
    """Return whether there are drafts that do not come from the host."""
    return plan.drafter.tokens > 0 and not DRAFTING_METHODS[plan.drafter.kind].drafts_on_host


def make_drafter(plan: Plan, steps: CachedSteps | None = None) -> Drafter | None:
    """Return the drafter's part of the round, None if no graph drafts."""
    if not drafts_in_graph(plan):
        return None
    site = drafter_context(plan, steps)
    return cascaded(module_of(plan.drafter.kind, "drafter").make(site), plan, site.shape)


def drafter_context(plan: Plan, steps: CachedSteps | None = None) -> DrafterContext:
    """Return the context from which a plan's drafter, and its reference, are made."""
    own = replace(plan, drafter=plan.drafter.own)
    return DrafterContext(own, cache_shape(plan), partial(load_decoder, steps=steps or CachedSteps()))


def load_decoder(model: ModelPlan, role: str, shape: CacheShape, steps: CachedSteps) -> Decoder:
    """Load a model with the attention hook, and check that all its attention goes through it."""
    loaded, probed = load_model(model.folder, shape.max_length), list[Decoder]()

    def find() -> list[dict[str, Any]]:
        with log_step(f"loading the {role} and probing its attention"):
            probed.append(probe(loaded, shape))
        return [asdict(layer) for layer in probed[0].layers]

    key = {"model": model_key(model), "max_length": shape.max_length}
    found = steps.result(f"probing the attention of the {role}", key, find)
    return probed[0] if probed else with_hook(loaded, [LayerAttention.from_json(each) for each in found], shape)


def drafter_key(plan: Plan) -> dict[str, Any]:
    """Return the key of a drafter: its plan and the content of all files; with the target, which it may read."""
    drafter = plan.drafter
    made = drafter.to_json() | {"models": [model_key(model) for model in drafter.models]}
    if drafter.head is not None:
        made["head"] = drafter.head.to_json() | dict.fromkeys(("reference", "revision", "commit", "precision"))
        made["head"]["files"] = file_hashes(drafter.head.folder, drafter.head.files)
    # Of a target that it does not read, the drafter needs only the vocabulary size.
    reads = drafter.head is not None or drafter.layers
    return made | {"target": model_key(plan.target) if reads else plan.target.facts.vocabulary_size}


def model_key(model: ModelPlan) -> dict[str, str]:
    """Return the key of a model: the content of its config and its weights, by file."""
    return file_hashes(model.folder, [CONFIG, *(file for file in model.files if file.suffix == ".safetensors")])
