"""Decide the tree of the drafts from `drafter.tree` and `drafter.tokens`. `schema` has the forms of a tree."""

from collections.abc import Callable
from itertools import accumulate
from operator import mul

from speccompile.contract import MAX_DRAFT_CANDIDATES
from speccompile.drafters import DRAFTING_METHODS
from speccompile.drafters.lookahead.nodes import GUESSES, LEVEL, WINDOW, lay_out
from speccompile.drafters.method import DefaultTree
from speccompile.plan.plan import TreePlan
from speccompile.plan.recipe_source import RecipeSource, format_value, nearest, one_of
from speccompile.recipe.schema import Drafter, TreeMapping
from speccompile.tree import MOST_DEPTH, NAMED, ROOT, Tree, TreeError, chain, from_branching, from_parents, from_paths

KEY = "drafter.tree"
CHAIN = "chain"
TOKENS = 4
MOST_DRAFTS = 127
"""Maximum number of drafts of all drafters together: the window also has the root."""
NO_TREE = TreePlan(CHAIN, (ROOT,), 0)
"""Tree without drafts."""


def decide_tree(written: Drafter, copies: int, origin: RecipeSource, *, by_votes: bool = False) -> tuple[TreePlan, int]:
    """Return the tree of each of `copies` drafters, and the number of drafts of all of them. by_votes: a dynamic tree
    takes the best nodes regardless of their parents, so that top_k, the maximum number of children, is optional.

    Raise RecipeError for an invalid tree, and for one that is too large for the window.
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
        if written.tree.kind is not None:
            return _best_nodes(written.tree, written.kind or "", origin)
        return _dynamic(written.tree, copies, origin, by_votes)
    tree = _static(written.tree, copies, origin)
    _limit(tree.drafts, tree.depth, copies, KEY, origin)
    return _plan(tree), tree.drafts * copies


def decide_default_tree(written: Drafter, own: DefaultTree, origin: RecipeSource) -> tuple[TreePlan, int]:
    """Return the default tree of a drafting method, unless the recipe asks for another, and its number of drafts.

    Raise RecipeError as `decide_tree`, for keys of both trees, and for a node with more children than drafter.top_k.
    """
    if written.tree is None and written.tokens is None:
        try:
            pruned = own.prune(written.nodes or own.nodes, written.top_k or own.top_k)
        except TreeError as error:
            hint = "set drafter.nodes to that or less, or raise drafter.top_k"
            raise origin.error("drafter.nodes" if written.nodes else "drafter.top_k", str(error), hint) from None
        return _plan(pruned), pruned.drafts
    if written.nodes is not None:
        key = KEY if written.tree is not None else "drafter.tokens"
        expected = f"nothing beside {key}, which says itself how many drafts there are"
        raise origin.refusal("drafter.nodes", str(written.nodes), expected, f"remove drafter.nodes or {key}")
    tree, tokens = decide_tree(written, 1, origin)
    top_k, most = written.top_k or own.top_k, 1 if tree.parents is None else Tree(tree.parents).branching
    if most > top_k:
        received, expected = f"a node with {most} children", f"at most {top_k}, which is drafter.top_k"
        hint = f"set drafter.top_k to {most} or more, or give no node more than {top_k} children"
        raise origin.refusal(KEY, received, expected, hint)
    return tree, tokens


def decide_lookahead(written: Drafter, origin: RecipeSource) -> tuple[tuple[int, int, int], TreePlan, int]:
    """Return (window columns, tokens of an n-gram, n-grams to verify) of lookahead decoding, their tree, and its number
    of drafts. Raise RecipeError if it is too large for the window."""
    window, level, guesses = written.window or WINDOW, written.level or LEVEL, written.guesses or GUESSES
    tree = lay_out(window, level, guesses).tree
    if tree.drafts > MOST_DRAFTS:
        names = ("window", "level", "guesses")
        key = next((f"drafter.{name}" for name in names if getattr(written, name) is not None), "drafter.window")
        drafts = f"{tree.drafts} drafts of a window of {window} with level {level}, and {guesses} guesses"
        raise origin.refusal(
            key, f"more nodes than the window holds: {drafts}", f"at most {MOST_DRAFTS}",
            "lower drafter.window, drafter.level or drafter.guesses",
        )  # fmt: skip
    return (window, level, guesses), _plan(tree), tree.drafts


def check_branching(tree: TreePlan, vocabulary: int, sample: bool, origin: RecipeSource) -> None:
    """Raise RecipeError for a node with more children than there are tokens to choose from."""
    limits = [(vocabulary, "the tokens of the vocabulary", f"give no node of {KEY} more children than that")]
    if sample:
        limits.append((MAX_DRAFT_CANDIDATES, "among which a sampled draft is drawn", "set drafter.sample to false"))
    widest = tree.top_k or (1 if tree.parents is None else Tree(tree.parents).branching)
    for most, reason, hint in limits:
        if widest > most:
            received = f"a node with {widest} children"
            raise origin.refusal(f"{KEY}.top_k" if tree.top_k else KEY, received, f"at most {most}, {reason}", hint)


def check_successors(successors: int, vocabulary: int, origin: RecipeSource) -> None:
    """Raise RecipeError if `successors`, a number of most probable tokens, exceeds the target's vocabulary."""
    if successors > vocabulary:
        expected = f"at most {vocabulary}, the tokens of the vocabulary"
        raise origin.refusal("drafter.top_k", str(successors), expected, f"set drafter.top_k to {vocabulary} or less")


def _plan(tree: Tree) -> TreePlan:
    """Return the plan of a tree; a tree with one branch is a chain in every form."""
    return TreePlan(CHAIN if tree.is_chain else "static", tree.parents, tree.depth)


def _static(written: str | list[int] | list[list[int]] | TreeMapping, copies: int, origin: RecipeSource) -> Tree:
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


def _tree(make: Callable[[], Tree], example: str, origin: RecipeSource) -> Tree:
    try:
        return make()
    except TreeError as error:
        raise origin.error(KEY, str(error), f"for example `tree: {example}`") from None


def _named(name: str, origin: RecipeSource) -> Tree:
    if name in NAMED:
        return NAMED[name]
    known = [CHAIN, *NAMED]
    guess = nearest(name, known)
    hint = f"did you mean '{guess}'?" if guess else "or write a tree of your own, for example `tree: [4, 2, 1]`"
    raise origin.refusal(KEY, f"{format_value(name)}, which is unknown", one_of(known), hint)


def _limit(drafts: int, depth: int, copies: int, key: str, origin: RecipeSource) -> None:
    """Raise RecipeError for a tree that is too large for the window, before it is created."""
    if drafts * copies > MOST_DRAFTS:
        each = f" ({copies} models with {drafts} each)" if copies > 1 else ""
        raise origin.refusal(
            key, f"more nodes than the window holds: {drafts * copies} drafts{each}", f"at most {MOST_DRAFTS}",
            "draft less" if copies == 1 else "draft less, or with fewer models",
        )  # fmt: skip
    if depth > MOST_DEPTH:
        raise origin.refusal(key, f"a tree of depth {depth}", f"at most {MOST_DEPTH}", "make its paths shorter")


def _dynamic(written: TreeMapping, copies: int, origin: RecipeSource, by_votes: bool) -> tuple[TreePlan, int]:
    _check_names(written, origin, by_votes)
    depth, top_k, nodes = (written.depth or 0), (written.top_k or 0), (written.nodes or 0)
    if by_votes:
        most, why = MOST_DRAFTS, "which the window holds"
    else:
        most, why = top_k + (depth - 1) * top_k**2, f"which is all that top_k {top_k} makes at that depth"
    if not depth <= nodes <= most:
        expected = f"a number from {depth}, the depth, to {most}, {why}"
        hint = f"set {KEY}.nodes to such a number, or change {KEY}.depth" + ("" if by_votes else f" or {KEY}.top_k")
        raise origin.refusal(f"{KEY}.nodes", str(nodes), expected, hint)
    _limit(nodes, depth, copies, KEY, origin)
    return TreePlan("dynamic", None, depth, top_k or None), nodes * copies


def _best_nodes(written: TreeMapping, kind: str, origin: RecipeSource) -> tuple[TreePlan, int]:
    """Return the plan of the best nodes of all trees that one pass makes. Without a depth it is that of a new drafter,
    until the head says its own. Raise RecipeError for a kind that does not draft in one pass, and for other keys."""
    method = DRAFTING_METHODS[kind]
    if not method.best_nodes:
        kinds = one_of([name for name, each in DRAFTING_METHODS.items() if each.best_nodes])
        hint = f"write `tree: {{depth: 5, top_k: 4, nodes: 24}}`, or set drafter.kind to {kinds}"
        expected = f"a tree of another form: drafter.kind {kind} does not draft a block in one pass"
        raise origin.refusal(f"{KEY}.kind", "blocks", expected, hint)
    if written.top_k is not None:
        expected = "kind, nodes and maybe depth: every node may have any number of children"
        raise origin.refusal(f"{KEY}.top_k", str(written.top_k), expected, f"remove {KEY}.top_k, or {KEY}.kind")
    if written.nodes is None:
        hint = "for example `tree: {kind: blocks, nodes: 16}`"
        raise origin.refusal(f"{KEY}.nodes", "nothing", "the number of nodes beside kind", hint)
    if written.depth is not None and written.depth > written.nodes:
        expected = f"at most {written.nodes}, the number of nodes"
        raise origin.refusal(f"{KEY}.depth", str(written.depth), expected, f"lower it, or raise {KEY}.nodes")
    depth = written.depth or min(written.nodes, method.training.depth if method.training else MOST_DEPTH)
    return TreePlan("dynamic", None, depth), written.nodes


def _check_names(written: TreeMapping, origin: RecipeSource, by_votes: bool) -> None:
    """Raise RecipeError for a dynamic tree with a missing key."""
    for name in ("depth", "nodes") if by_votes else ("depth", "top_k", "nodes"):
        if getattr(written, name) is None:
            received, expected = "nothing", "it beside the other keys of a dynamic tree"
            example = "{depth: 8, nodes: 16}" if by_votes else "{depth: 5, top_k: 4, nodes: 24}"
            raise origin.refusal(f"{KEY}.{name}", received, expected, f"for example `tree: {example}`")


def _refuse_both(written: TreeMapping, origin: RecipeSource) -> None:
    for name in ("kind", "depth", "top_k", "nodes"):
        if getattr(written, name) is not None:
            received = f"{getattr(written, name)} beside {KEY}.parents"
            raise origin.refusal(
                f"{KEY}.{name}", received, "either parents, or depth, top_k and nodes", f"remove {KEY}.{name}"
            )
