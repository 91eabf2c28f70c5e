"""Recipe -> what is looked up behind a drafter's drafts, in their place, and for the drafter."""

import json

import pytest

from speccompile.errors import RecipeError
from speccompile.plan.plan import CascadePlan, InnerPlan, LookupPlan
from speccompile.recipe import TreePlan, load_recipe, make_plan
from speccompile.tree import chain

LOOKUP = {"kind": "prompt_lookup"}


@pytest.fixture
def recipe(make_recipe, make_checkpoint, tmp_path):
    """Return a recipe with a language model that drafts, and more keys of its section."""
    make_checkpoint(tmp_path / "other")

    def recipe(drafter=(), **keys):
        return make_recipe(drafter={"kind": "model", "model": "drafter"} | dict(drafter), **keys)

    return recipe


@pytest.fixture
def plan(recipe):
    return lambda *arguments, **keys: make_plan(load_recipe(recipe(*arguments, **keys)))


def chain_plan(tokens):
    return TreePlan("chain", chain(tokens).parents, tokens)


def test_a_tail_makes_the_chain_longer(plan):
    drafter = plan({"tokens": 3, "then": "prompt_lookup"}).drafter
    assert (drafter.tokens, drafter.tree) == (7, chain_plan(7))
    assert drafter.cascade == CascadePlan(chain_plan(3), LookupPlan("prompt_lookup", 4, 3))
    assert (drafter.own.tokens, drafter.own.tree, drafter.own.cascade) == (3, chain_plan(3), None)
    short = plan({"then": LOOKUP | {"tokens": 1, "ngram": 5}}).drafter
    assert (short.tokens, short.cascade.then) == (5, LookupPlan("prompt_lookup", 1, 5))


def test_a_gate_copies_as_much_as_is_drafted_or_more(plan):
    drafter = plan({"tokens": 3, "gate": "prompt_lookup"}).drafter
    assert (drafter.tokens, drafter.cascade.gate) == (3, LookupPlan("prompt_lookup", 3, 5, 5))
    more = plan({"tokens": 3, "gate": LOOKUP | {"match": 2, "tokens": 9}}).drafter
    assert (more.tokens, more.own.tokens, more.cascade.gate) == (9, 3, LookupPlan("prompt_lookup", 9, 3, 2))
    both = plan({"tokens": 3, "then": LOOKUP | {"tokens": 2}, "gate": LOOKUP}).drafter
    assert (both.tokens, both.cascade.gate.tokens) == (5, 5)


def test_a_gate_fills_a_tree_with_certain_drafts(plan):
    drafter = plan({"tree": [2, 1], "gate": "prompt_lookup"}, decoding="sampling").drafter
    assert (drafter.tokens, drafter.tree.kind, drafter.sample) == (4, "static", False)
    assert plan({"gate": "prompt_lookup"}, decoding="sampling").drafter.sample


def test_what_drafts_for_a_model(plan):
    drafter = plan({"tokens": 8, "drafter": "prompt_lookup"}, decoding="sampling").drafter
    assert (drafter.inner, drafter.sample) == (InnerPlan("prompt_lookup", 4, 3, 3, 1.0), False)
    inner = LOOKUP | {"tokens": 2, "ngram": 1, "passes": 1, "lenience": 0.5}
    assert plan({"tokens": 4, "drafter": inner}).drafter.inner == InnerPlan("prompt_lookup", 2, 1, 1, 0.5)
    assert plan({"tokens": 4, "drafter": "prompt_lookup"}).drafter.inner.passes == 2
    assert plan({"tokens": 8, "drafter": LOOKUP, "then": LOOKUP}).drafter.own.inner is not None


def test_the_plan_shows_them(recipe, command_line):
    path = recipe({"tokens": 8, "drafter": LOOKUP | {"passes": 2}, "then": LOOKUP, "gate": LOOKUP | {"match": 4}})
    code, out, _ = command_line("plan", path)
    assert code == 0
    rows = {tuple(line.split()[:2]) for line in out.splitlines()}
    assert {
        ("drafter.tokens", "8"), ("drafter.drafter.passes", "2"), ("drafter.drafter.lenience", "1.0"),
        ("drafter.then.tokens", "4"), ("drafter.gate.match", "4"), ("drafter.gate.ngram", "4"),
    } <= rows  # fmt: skip
    data = json.loads(command_line("plan", path, "--json")[1])["drafter"]
    assert (data["tokens"], data["cascade"]["tree"]["depth"], data["inner"]["passes"]) == (12, 8, 2)


TWO = {"kind": "models", "model": None, "models": ["drafter", "other"]}


@pytest.mark.parametrize(
    ("drafter", "message"),
    [
        ({"then": LOOKUP, "tree": [2, 1]}, "drafter.then: received a tail behind a static tree, expected it behind a"),
        (
            {"then": LOOKUP, "tree": {"depth": 2, "top_k": 2, "nodes": 4}},
            "drafter.then: received a tail behind a dynamic tree, expected it behind a chain",
        ),
        (TWO | {"then": LOOKUP}, "drafter.then: received a tail behind the tree that 2 models draft, expected it behi"),
        ({"then": "prompt-lokup"}, "drafter.then.kind: received 'prompt-lokup', which is unknown, expected prompt_l"),
        ({"then": "retrieval"}, "drafter.then.kind: received 'retrieval', whose drafts come from the host"),
        ({"then": {"tokens": 2}}, "drafter.then.kind: received nothing, expected prompt_lookup"),
        ({"then": LOOKUP | {"match": 2}}, "drafter.then.match: received an unknown key, expected one of kind, tokens,"),
        ({"then": LOOKUP | {"tokens": 0}}, "drafter.then.tokens: received 0, expected a whole number from 1 to 15"),
        ({"then": 4}, "drafter.then: received 4, expected a drafter kind, or a mapping with the keys kind, tokens and"),
        ({"then": LOOKUP, "tokens": 13}, "drafter.then.tokens: received 17 drafts after one another (13 and a tail of"),
        (
            {"kind": "prompt_lookup", "model": None, "gate": LOOKUP},
            "drafter.gate: received a key that means nothing for this drafter, expected it only with drafter.kind mode",
        ),
        (
            {"kind": "none", "model": None, "gate": LOOKUP},
            "drafter.gate: received a key that means nothing for this drafter, expected it only with drafter.kind mode",
        ),
        (
            {"kind": "prompt_lookup", "model": None, "then": LOOKUP},
            "drafter.then: received a key that means nothing for this drafter, expected it only with drafter.kind mode",
        ),
        ({"gate": LOOKUP | {"ngram": 3}}, "drafter.gate.ngram: received 3, expected at least drafter.gate.match, whic"),
        ({"gate": LOOKUP | {"match": 17}}, "drafter.gate.match: received 17, expected a whole number of tokens from 1"),
        (TWO | {"gate": LOOKUP}, "drafter.gate: received a gate beside the tree that 2 models draft, expected it besi"),
        ({"gate": LOOKUP | {"tokens": 3}, "tree": [2, 1]}, "drafter.gate.tokens: received 3, expected nothing beside"),
        (
            {"drafter": {"kind": "model"}, "tokens": 8},
            "drafter.drafter.kind: received 'model', and this version drafts for a drafter by looking up in the text a",
        ),
        ({"drafter": LOOKUP, "tree": [2, 1]}, "drafter.drafter: received a drafter for a static tree, expected it for"),
        (
            {"drafter": LOOKUP | {"passes": 3}, "tokens": 4},
            "drafter.tokens: received 4 (beside 3 passes with 4 looked-up tokens each), expected more than 4, which th",
        ),
        (
            {"drafter": LOOKUP | {"passes": 1, "tokens": 2}, "tokens": 5},
            "drafter.tokens: received 5 (beside 1 passes with 2 looked-up tokens each), expected more than 2, which th",
        ),
        ({"drafter": LOOKUP | {"lenience": 0}}, "drafter.drafter.lenience: received 0, expected a number above 0, at"),
        (
            {"kind": "layer_skip", "model": None, "layers": [0], "drafter": LOOKUP},
            "drafter.drafter: received a key that means nothing for this drafter, expected it only with drafter.kind m",
        ),
    ],
)  # fmt: skip
def test_what_does_not_go_together(plan, drafter, message):
    with pytest.raises(RecipeError) as caught:
        plan(
            {name: value for name, value in drafter.items() if value is not None}
            | {"model": drafter.get("model", "drafter")}
        )
    assert message in str(caught.value)
    assert caught.value.hint


def test_what_cannot_be_drawn(plan):
    with pytest.raises(
        RecipeError, match=r"drafter.sample: received true, for a tree beside drafter.gate, expected cer"
    ):
        plan({"tree": [2, 1], "gate": LOOKUP, "sample": True}, decoding="sampling")
    with pytest.raises(RecipeError, match=r"drafter.sample: received true, expected false: a draft that was looked up"):
        plan({"tokens": 8, "drafter": LOOKUP, "sample": True}, decoding="sampling")
    with pytest.raises(RecipeError, match=r"drafter.drafter: received it beside verify.method bild, expected a method"):
        plan({"tokens": 8, "drafter": LOOKUP}, verify={"method": "bild"})
