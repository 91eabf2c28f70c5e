"""`drafter.tree` and `drafter.tokens` -> how drafts follow each other. The forms of a tree are in `schema`."""

from collections.abc import Callable
from itertools import accumulate
from operator import mul

from speccompile.contract import CANDIDATES
from speccompile.recipe.plan import TreePlan
from speccompile.recipe.refusal import Origin, nearest, one_of
from speccompile.recipe.schema import Drafter, TreeMapping
from speccompile.tree import MOST_DEPTH, NAMED, ROOT, Tree, TreeError, chain, from_branching, from_parents, from_paths

KEY = "drafter.tree"
CHAIN = "chain"
TOKENS = 4
MOST_DRAFTS = 127
"""Of all drafters together: the window also holds the root."""
NO_TREE = TreePlan(CHAIN, (ROOT,), 0)
"""Where nothing is drafted."""


def decide_tree(written: Drafter, copies: int, origin: Origin) -> tuple[TreePlan, int]:
    """The tree that each of `copies` drafters drafts, and the drafts of all of them together.

    Raises RecipeError for what is no tree, and for one that no window holds.
    """
    if written.tree is None or written.tree == CHAIN:
        tokens = written.tokens or TOKENS
        _limit(tokens, tokens, copies, KEY if copies == 1 else "drafter.models", origin)
        return _plan(chain(tokens)), tokens * copies
    if written.tokens is not None:
        raise origin.refusal(
            "drafter.tokens", str(written.tokens), "nothing beside a tree, which says itself how many drafts there are",
            f"remove drafter.tokens (or set it to null), or set {KEY} to {CHAIN}",
        )  # fmt: skip
    if isinstance(written.tree, TreeMapping) and written.tree.parents is None:
        return _dynamic(written.tree, copies, origin)
    tree = _static(written.tree, copies, origin)
    _limit(tree.drafts, tree.depth, copies, KEY, origin)
    return _plan(tree), tree.drafts * copies


def check_branching(tree: TreePlan, vocabulary: int, sample: bool, origin: Origin) -> None:
    """Raises RecipeError for a node with more children than there are tokens to choose them from."""
    limits = [(vocabulary, "the tokens of the vocabulary", f"give no node of {KEY} more children than that")]
    if sample:
        limits.append((CANDIDATES, "among which a sampled draft is drawn", "set drafter.sample to false"))
    widest = tree.top_k or Tree(tree.parents or ()).branching
    for most, reason, hint in limits:
        if widest > most:
            received = f"a node with {widest} children"
            raise origin.refusal(f"{KEY}.top_k" if tree.top_k else KEY, received, f"at most {most}, {reason}", hint)


def _plan(tree: Tree) -> TreePlan:
    """A tree with one branch is a chain, however it was written."""
    return TreePlan(CHAIN if tree.is_chain else "static", tree.parents, tree.depth)


def _static(written: str | list[int] | list[list[int]] | TreeMapping, copies: int, origin: Origin) -> Tree:
    if isinstance(written, str):
        return _named(written, origin)
    if isinstance(written, TreeMapping):
        _refuse_both(written, origin)
        parents = written.parents or []
        _limit(len(parents) - 1, 0, copies, KEY, origin)
        if parents == [ROOT]:
            hint = "for example `tree: {parents: [-1, 0, 0, 1]}`, or set drafter.kind to none"
            raise origin.refusal(KEY, "a root without drafts", "one node or more below it", hint)
        return _tree(lambda: from_parents(parents), "{parents: [-1, 0, 0, 1]}", origin)
    paths = [each for each in written if isinstance(each, list)]
    if paths:
        _limit(len(paths), max(map(len, paths)), copies, KEY, origin)
        return _tree(lambda: from_paths(paths), "[[0], [1], [0, 0]]", origin)
    factors = [each for each in written if isinstance(each, int)]
    _limit(sum(accumulate(factors, mul)), len(factors), copies, KEY, origin)
    return _tree(lambda: from_branching(factors), "[4, 2, 1]", origin)


def _tree(make: Callable[[], Tree], example: str, origin: Origin) -> Tree:
    try:
        return make()
    except TreeError as error:
        raise origin.complaint(KEY, str(error), f"for example `tree: {example}`") from None


def _named(name: str, origin: Origin) -> Tree:
    if name in NAMED:
        return NAMED[name]
    known = [CHAIN, *NAMED]
    guess = nearest(name, known)
    hint = f"did you mean '{guess}'?" if guess else "or write a tree of your own, for example `tree: [4, 2, 1]`"
    raise origin.refusal(KEY, f"'{name}', which is unknown", one_of(known), hint)


def _limit(drafts: int, depth: int, copies: int, key: str, origin: Origin) -> None:
    """Refuse what no window holds, before anything of that size is made."""
    if drafts * copies > MOST_DRAFTS:
        each = f" ({copies} models with {drafts} each)" if copies > 1 else ""
        raise origin.refusal(
            key, f"more nodes than the window holds: {drafts * copies} drafts{each}", f"at most {MOST_DRAFTS}",
            "draft less" if copies == 1 else "draft less, or with fewer models",
        )  # fmt: skip
    if depth > MOST_DEPTH:
        raise origin.refusal(key, f"a tree of depth {depth}", f"at most {MOST_DEPTH}", "make its paths shorter")


def _dynamic(written: TreeMapping, copies: int, origin: Origin) -> tuple[TreePlan, int]:
    for name in ("depth", "top_k", "nodes"):
        if getattr(written, name) is None:
            received, expected = "nothing", "it beside the other keys of a dynamic tree"
            hint = "for example `tree: {depth: 5, top_k: 4, nodes: 24}`"
            raise origin.refusal(f"{KEY}.{name}", received, expected, hint)
    depth, top_k, nodes = (written.depth or 0), (written.top_k or 0), (written.nodes or 0)
    most = top_k + (depth - 1) * top_k**2
    if not depth <= nodes <= most:
        expected = f"a number from {depth}, the depth, to {most}, which is all that top_k {top_k} makes at that depth"
        hint = f"set {KEY}.nodes to such a number, or change {KEY}.depth or {KEY}.top_k"
        raise origin.refusal(f"{KEY}.nodes", str(nodes), expected, hint)
    _limit(nodes, depth, copies, KEY, origin)
    return TreePlan("dynamic", None, depth, top_k), nodes * copies


def _refuse_both(written: TreeMapping, origin: Origin) -> None:
    for name in ("depth", "top_k", "nodes"):
        if getattr(written, name) is not None:
            received = f"{getattr(written, name)} beside {KEY}.parents"
            raise origin.refusal(
                f"{KEY}.{name}", received, "either parents, or depth, top_k and nodes", f"remove {KEY}.{name}"
            )
