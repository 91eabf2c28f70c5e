"""Decide the lookups that add to a drafter, or draft for it: `drafter.then`, `drafter.gate` and `drafter.drafter`."""

from dataclasses import replace

from speccompile.drafters import DRAFTING_METHODS
from speccompile.plan.plan import (
    RETRIEVAL,
    CascadePlan,
    DrafterPlan,
    InnerPlan,
    LookupPlan,
    ModelPlan,
    RetrievalPlan,
    TreePlan,
    VerifyPlan,
)
from speccompile.plan.recipe_source import RecipeSource, format_value, nearest, one_of
from speccompile.recipe.combinations import TREES
from speccompile.recipe.retrieval import MOST, OCCURRENCES, decide_index
from speccompile.recipe.schema import Drafter, Gate, Inner, Recipe, Tail
from speccompile.tree import MOST_DEPTH, chain

THEN, GATE, INNER = "drafter.then", "drafter.gate", "drafter.drafter"
LOOKUP_KINDS = tuple(kind for kind, method in DRAFTING_METHODS.items() if method.looks_up)
"""Kinds that can look up in the text for another drafter."""
GATES = (*LOOKUP_KINDS, RETRIEVAL)
"""Kinds that can replace a drafter's drafts in a round, from the graph or from the host."""
HOST_LOOKUPS = {kind: method.elsewhere for kind, method in DRAFTING_METHODS.items() if method.elsewhere}
"""Kinds that users may expect in a cascade -> why this version does not support them."""
TOKENS, NGRAM, MATCH, PASSES = 4, 3, 5, 3


def decide_cascade(recipe: Recipe, target: ModelPlan, draft: DrafterPlan, verify: VerifyPlan) -> DrafterPlan:
    """Return the plan of the drafter with its lookups. draft: the plan of the drafter alone.

    Raise RecipeError for unsupported combinations: a tail after a tree, a gate for a dynamic tree; and for a gate's
    index as `decide_index`.
    """
    written, origin = recipe.drafter or Drafter(), recipe.origin
    if written.drafter is not None:
        draft = replace(draft, inner=_inner(written.drafter, draft, verify, written, origin), sample=False)
    if written.then is None and written.gate is None:
        return draft
    if written.gate is not None:
        draft = _check_gated(draft, written, written.gate, origin)
    then = None if written.then is None else _then(written.then, draft, origin)
    depth = draft.tree.depth + (then.tokens if then else 0)
    if depth > MOST_DEPTH:
        received = f"{depth} drafts after one another ({draft.tree.depth} and a tail of {depth - draft.tree.depth})"
        raise origin.refusal(f"{THEN}.tokens", received, f"at most {MOST_DEPTH}", "draft less, or cut the tail")
    gate = None if written.gate is None else _gate(written.gate, draft, depth, origin)
    if written.gate is not None and gate is not None:
        draft = replace(draft, retrieval=_index(written.gate, gate, target, origin))
    cascade = CascadePlan(draft.tree, then, gate)
    if not _is_chain(draft):
        return replace(draft, cascade=cascade)
    tokens = max(depth, gate.tokens if gate else 0)
    return replace(draft, tokens=tokens, tree=TreePlan("chain", chain(tokens).parents, tokens), cascade=cascade)


def _is_chain(draft: DrafterPlan) -> bool:
    return draft.tree.kind == "chain" and len(draft.models) <= 1


def _shown(draft: DrafterPlan) -> str:
    """Describe the tree of the drafts, for messages."""
    return f"the tree that {len(draft.models)} models draft" if len(draft.models) > 1 else TREES[draft.tree.kind]


def _then(written: Tail, draft: DrafterPlan, origin: RecipeSource) -> LookupPlan:
    if not _is_chain(draft):
        received = f"a tail behind {_shown(draft)}"
        hint = "remove drafter.tree, or drafter.then"
        raise origin.refusal(THEN, received, "it behind a chain, which has one end", hint)
    kind = _kind(written.kind, THEN, LOOKUP_KINDS, origin)
    return LookupPlan(kind, written.tokens or TOKENS, written.ngram or NGRAM)


def _check_gated(draft: DrafterPlan, written: Drafter, gate: Gate, origin: RecipeSource) -> DrafterPlan:
    """Return the drafter, with greedy drafts in a tree and with an index. Raise RecipeError for a drafter that no
    lookup can replace."""
    if gate.kind == RETRIEVAL:
        return _check_beside_index(draft, written, origin)
    if draft.tree.kind == "dynamic" or len(draft.models) > 1:
        hint = "draft a chain or a static tree, or remove drafter.gate"
        raise origin.refusal(GATE, f"a gate beside {_shown(draft)}", "it beside a chain or a static tree", hint)
    if draft.tree.kind == "chain" or not draft.sample:
        return draft
    if written.sample:
        hint = "set drafter.sample to false, or draft a chain"
        expected = "certain drafts: several that are looked up behind one token cannot have been drawn there"
        raise origin.refusal("drafter.sample", "true, for a tree beside drafter.gate", expected, hint)
    return replace(draft, sample=False)


def _check_beside_index(draft: DrafterPlan, written: Drafter, origin: RecipeSource) -> DrafterPlan:
    if not _is_chain(draft):
        received, expected = f"an index beside {_shown(draft)}", "it beside a chain, as the host writes its drafts"
        raise origin.refusal(
            GATE, received, expected, f"remove drafter.tree, or set {GATE}.kind to {one_of(LOOKUP_KINDS)}"
        )
    if written.sample:
        hint = "set drafter.sample to false, or gate by a lookup in the text"
        expected = "false: the host's drafts were not drawn"
        raise origin.refusal("drafter.sample", f"true, beside {GATE}.kind {RETRIEVAL}", expected, hint)
    return replace(draft, sample=False)


def _index(written: Gate, gate: LookupPlan, target: ModelPlan, origin: RecipeSource) -> RetrievalPlan | None:
    """Return the plan of a gate's index, or None if the gate looks up in the text. Raise RecipeError."""
    key = f"{GATE}.index"
    if not gate.by_host:
        if written.index is not None:
            expected = f"nothing beside {GATE}.kind {gate.kind}, which looks up in the text"
            hint = f"set {GATE}.kind to {RETRIEVAL}, or remove {key}"
            raise origin.refusal(key, f"'{written.index}'", expected, hint)
        return None
    if written.index is None:
        hint = "add it, for example `index: build/index`"
        raise origin.refusal(key, "nothing", f"the index that {GATE}.kind {RETRIEVAL} drafts from", hint)
    return decide_index(key, written.index, (gate.match, gate.ngram, OCCURRENCES), target, origin)


def _gate(written: Gate, draft: DrafterPlan, depth: int, origin: RecipeSource) -> LookupPlan:
    kind, match = _kind(written.kind, GATE, GATES, origin), written.match or MATCH
    ngram = written.ngram or (MOST if kind == RETRIEVAL else max(match, NGRAM))
    if ngram < match:
        hint = f"set {GATE}.ngram to {match} or more, or {GATE}.match to less"
        expected = f"at least {GATE}.match, which is {match}: no match would be long enough"
        raise origin.refusal(f"{GATE}.ngram", str(ngram), expected, hint)
    if _is_chain(draft):
        return LookupPlan(kind, written.tokens or depth, ngram, match)
    if written.tokens is not None:
        expected = "nothing beside a tree, whose nodes are what is looked up"
        raise origin.refusal(f"{GATE}.tokens", str(written.tokens), expected, f"remove {GATE}.tokens")
    return LookupPlan(kind, draft.tokens, ngram, match)


def _inner(written: Inner, draft: DrafterPlan, verify: VerifyPlan, drafter: Drafter, origin: RecipeSource) -> InnerPlan:
    kind = _kind(written.kind, INNER, LOOKUP_KINDS, origin)
    if not _is_chain(draft):
        hint = f"remove drafter.tree, or {INNER}"
        raise origin.refusal(INNER, f"a drafter for {_shown(draft)}", "it for a chain", hint)
    if drafter.sample:
        expected = "false: a draft that was looked up was not drawn"
        raise origin.refusal("drafter.sample", "true", expected, f"set drafter.sample to false, or remove {INNER}")
    if "fallback" in verify.parameters:
        received, expected = f"it beside verify.method {verify.method}", "a method that does not stop between drafts"
        raise origin.refusal(INNER, received, expected, f"set verify.method to exact, or remove {INNER}")
    tokens, passes = written.tokens or TOKENS, written.passes or min(PASSES, max(1, draft.tokens - 2))
    least, most = passes + 1, passes * (1 + tokens) + 1
    if not least < draft.tokens <= most:
        expected = f"more than {least}, which these passes draft in any case, and at most {most}, which they ever draft"
        hint = f"change {INNER}.passes or drafter.tokens"
        received = f"{draft.tokens} (beside {passes} passes with {tokens} looked-up tokens each)"
        raise origin.refusal("drafter.tokens", received, expected, hint)
    return InnerPlan(kind, tokens, written.ngram or NGRAM, passes, written.lenience or 1.0)


def _kind(written: str | None, key: str, known: tuple[str, ...], origin: RecipeSource) -> str:
    key = f"{key}.kind"
    hint = f"set {key} to {one_of(known)}"
    if written is None:
        raise origin.refusal(key, "nothing", one_of(known), f"add it, for example `kind: {known[0]}`")
    if written in HOST_LOOKUPS and written not in known:
        raise origin.refusal(key, f"'{written}', {HOST_LOOKUPS[written]}", one_of(known), hint)
    if written not in known:
        guess = nearest(written, known)
        hint = f"did you mean '{guess}'?" if guess else hint
        raise origin.refusal(key, f"{format_value(written)}, which is unknown", one_of(known), hint)
    return written
