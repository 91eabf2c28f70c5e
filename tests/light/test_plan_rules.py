"""Recipe -> the rule of acceptance; and the tables of what goes together, word by word."""

import itertools
import re

import pytest
from transformers import LlamaConfig

from speccompile.drafters import KINDS_SHARING_TARGET_WEIGHTS, KINDS_WITH_WEIGHTS
from speccompile.errors import RecipeError
from speccompile.recipe import VerifyPlan, load_recipe, make_plan
from speccompile.recipe.acceptance_methods import ACCEPTANCE_METHODS
from speccompile.recipe.capabilities import DRAFTER_KEYS, PLANNED, SUPPORT_TABLE
from speccompile.recipe.combinations import COMBINATIONS, KEYS, TREES
from speccompile.recipe.schema import Drafter, Verify
from tests.heads.every import HEADS

DRAFTERS = {
    "none": {},
    "model": {"model": "drafter"},
    "models": {"models": ["drafter", "drafter"]},
    "prompt_lookup": {},
    "suffix": {},
    "token_recycling": {"tree": "chain"},  # of its own it drafts a tree
    "retrieval": {},
    "lookahead": {},
    "jacobi": {},
    "layer_skip": {"layers": [0]},
    **{kind: {"model": kind} for kind in HEADS},
}
FEATURE_LMS = ("mtp", "eagle3", "eagle", "hydra", "redrafter", "assistant")
"""Heads that draft token by token, so that a tree may grow."""
BLOCKS = ("dflash", "dspark", "domino")
"""A block of drafts at once, off whose positions any tree is read."""
ONE_PASS = ("pard", "pard2", "p_eagle")
"""Drafts at once, which are a chain, or the best nodes of all trees."""
MASKED = ("pass", "bita")
"""Kinds that bring rows alone, which the target itself reads."""
CERTAIN = ("models", "prompt_lookup", "suffix", "token_recycling", "retrieval", "lookahead", "jacobi", *MASKED)
"""Kinds whose drafts are never drawn: each is what was looked up, or the best of somebody's guesses."""
LEARNING = ("token_recycling", "lookahead")
"""Kinds whose drafts depend on everything that was generated before, which must then change no token."""
VOTES = ("suffix", "retrieval")
"""Kinds whose trees grow by votes: none is constant."""
SHAPES = {"chain": "chain", "static": [2, 1], "dynamic": {"depth": 2, "top_k": 2, "nodes": 3}}
VOTED = {"depth": 2, "nodes": 3}
"""A dynamic tree of what grows by votes, or as a proposer says."""
METHODS = ("exact", "typical", "lenience", "top_k", "bild")
WORDS = {
    "drafter": tuple(DRAFTERS),
    "decoding": ("greedy", "sampling"),
    "method": METHODS,
    "tree": tuple(SHAPES),
    "sample": ("false", "true"),
}


def can(drafter, decoding, method, tree, sample):
    """Return what goes together, by reasoning from the methods."""
    has_probabilities = drafter not in ("none", *CERTAIN)
    if drafter == "none":
        return (method, tree, sample) == ("exact", "chain", "false")
    if drafter == "kangaroo" and method != "exact":
        return False
    if drafter == "lookahead" and tree != "static":
        return False
    if drafter in LEARNING and method != "exact":
        return False
    if drafter in (*MASKED, "kangaroo", "jacobi") and tree != "chain":
        return False
    if sample == "true" and not (has_probabilities and decoding == "sampling" and method in ("exact", "lenience")):
        return False
    if drafter in (*VOTES, *ONE_PASS) and tree == "static":
        return False
    grows = drafter in ("model", "layer_skip", "medusa", *VOTES, *FEATURE_LMS, *BLOCKS, *ONE_PASS)
    if tree == "dynamic" and not (grows and method == "exact" and sample == "false"):
        return False
    if method in ("lenience", "bild") and (tree != "chain" or drafter == "models"):
        return False
    return method != "bild" or drafter in ("model", "layer_skip")


@pytest.fixture
def plan(make_recipe, make_checkpoint, tmp_path):
    target = LlamaConfig(vocab_size=8, hidden_size=16, intermediate_size=16, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2, head_dim=4, eos_token_id=1)  # fmt: skip
    sizes = {name: getattr(target, name) for name in ("hidden_size", "intermediate_size", "num_attention_heads")}
    make_checkpoint(tmp_path / "deep", num_hidden_layers=2, **sizes)

    def plan(**keys):
        kind = keys.get("drafter", {}).get("kind")
        if kind in HEADS and not (tmp_path / kind).exists():
            HEADS[kind](tmp_path / kind, target)
        return make_plan(load_recipe(make_recipe(**{"target": {"model": "deep"}} | keys)))

    return plan


@pytest.mark.parametrize(
    ("written", "parameters"),
    [
        ({"method": "exact"}, {}),
        ({"method": "typical"}, {"epsilon": 0.09, "delta": 0.3}),
        ({"method": "typical", "delta": 0}, {"epsilon": 0.09, "delta": 0}),
        ({"method": "lenience"}, {"lenience": 0.5}),
        ({"method": "lenience", "lenience": 1}, {"lenience": 1}),
        ({"method": "top_k", "k": 5}, {"k": 5, "gap": 2.0}),
        ({"method": "bild", "rollback": 1.5}, {"fallback": 0.5, "rollback": 1.5}),
    ],
)
def test_methods_and_their_parameters(plan, written, parameters):
    method = written["method"]
    decided = plan(verify=written, drafter={"kind": "model", "model": "drafter"}).verify
    assert decided == VerifyPlan(method, method == "exact", parameters)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (
            {"epsilon": 0.1},
            "epsilon: received a key that means nothing for this method, expected it only with verify.m",
        ),
        ({"method": "typical", "k": 2}, "verify.k: .* expected it only with verify.method top_k, not typical"),
        ({"method": "bild", "lenience": 0.5}, "verify.lenience: .* verify.method lenience, not bild"),
        ({"method": "top_k", "fallback": 0.5}, "verify.fallback: .* verify.method bild, not top_k"),
    ],
)
def test_parameters_of_other_methods_are_refused(plan, written, message):
    with pytest.raises(RecipeError, match=message) as caught:
        plan(verify=written, drafter={"kind": "model", "model": "drafter"})
    assert caught.value.hint.endswith("or change verify.method")


@pytest.mark.parametrize(
    ("keys", "message", "hint"),
    [
        (
            {"drafter": {"kind": "prompt_lookup"}, "verify": {"method": "bild"}},
            "verify.method: received 'bild', which drafter.kind prompt_lookup cannot do, expected exact, typical, top",
            "set drafter.kind to model or layer_skip, or verify.method to exact, typical, top_k or lenience",
        ),
        (
            {"drafter": {"kind": "none"}, "verify": {"method": "typical"}},
            "verify.method: received 'typical', which drafter.kind none cannot do, expected exact",
            r"set drafter.kind to model, models, prompt_lookup, (?=.*\beagle3\b)(?=.*\bsuffix\b)(?=.*\bjacobi\b)"
            r"((?!kangaroo|none).)* or \w+, or verify.method to exact",
        ),
        (
            {"drafter": {"kind": "prompt_lookup", "tree": [2]}, "verify": {"method": "lenience"}},
            "drafter.tree: received a static tree, which verify.method lenience cannot do, expected a chain",
            "set verify.method to exact, typical or top_k, or drafter.tree to a chain",
        ),
        (
            {"drafter": {"kind": "prompt_lookup", "tree": SHAPES["dynamic"]}},
            "drafter.tree: received a dynamic tree, which drafter.kind prompt_lookup cannot do, expected a chain or a ",
            r"set drafter.kind to model, layer_skip, mtp, dflash, dspark, domino, eagle3, eagle, medusa, hydra, "
            r"redrafter, assistant, suffix, retrieval, pard, pard2 or p_eagle, or "
            r"drafter.tree to a chain or a static tree",
        ),
        (
            {
                "drafter": {"kind": "model", "model": "drafter", "sample": True, "tree": SHAPES["dynamic"]},
                "decoding": "sampling",
            },
            "drafter.sample: received true, which drafter.tree dynamic cannot do, expected false",
            "set drafter.tree to a chain or a static tree, or drafter.sample to false",
        ),
        (
            {"drafter": {"kind": "model", "model": "drafter", "sample": True}, "verify": {"method": "bild"}},
            "drafter.sample: received true, which drafter.kind model, decoding greedy, verify.method bild, drafter."
            "tree chain cannot do, expected false",
            "set drafter.sample to false",
        ),
    ],
)
def test_what_does_not_go_together_is_refused_with_what_can_be_changed(plan, keys, message, hint):
    with pytest.raises(RecipeError) as caught:
        plan(**keys)
    assert message in str(caught.value)
    assert re.fullmatch(hint, caught.value.hint)


@pytest.mark.parametrize(("drafter", "decoding"), itertools.product(WORDS["drafter"], WORDS["decoding"]))
def test_every_combination_of_the_table_is_planned_and_every_other_refused(plan, drafter, decoding):
    for method, tree, sample in itertools.product(WORDS["method"], WORDS["tree"], WORDS["sample"]):
        has_own = drafter == "lookahead"  # a tree, which is static: no key asks for it, nor for a chain
        if has_own and tree == "chain":
            continue
        section = DRAFTERS[drafter] | {"kind": drafter}
        shape = VOTED if (drafter, tree) == ("retrieval", "dynamic") else SHAPES[tree]
        section |= {"tree": shape} if tree != ("static" if has_own else "chain") else {}
        section |= {"sample": sample == "true"} if "sample" in DRAFTER_KEYS[drafter] or sample == "true" else {}
        keys = {"drafter": section, "decoding": decoding, "verify": {"method": method}}
        if can(drafter, decoding, method, tree, sample):
            decided = plan(**keys)
            found = (decided.drafter.kind, decided.drafter.tree.kind, decided.drafter.sample, decided.verify.method)
            assert found == (drafter, tree, sample == "true", method)
        else:
            with pytest.raises(RecipeError, match=r"cannot do, expected|means nothing for this drafter"):
                plan(**keys)


def test_the_table_of_combinations_is_what_the_methods_allow():
    rows = {words for row in COMBINATIONS for words in itertools.product(*(row[dimension] for dimension in KEYS))}
    assert rows == {words for words in itertools.product(*WORDS.values()) if can(*words)}
    assert sum(len(list(itertools.product(*(row[d] for d in KEYS)))) for row in COMBINATIONS) == len(rows)


def test_every_word_of_the_tables_is_known_everywhere():
    for row in COMBINATIONS:
        assert tuple(row) == tuple(KEYS)
    for dimension in ("drafter", "decoding", "method"):
        for row in SUPPORT_TABLE:
            assert set(row[dimension]) == set(WORDS[dimension])
        assert not set(WORDS[dimension]) & set(PLANNED[dimension])
    assert tuple(TREES) == WORDS["tree"]
    assert tuple(DRAFTER_KEYS) == WORDS["drafter"]
    assert tuple(ACCEPTANCE_METHODS) == WORDS["method"]
    assert [name for name, method in ACCEPTANCE_METHODS.items() if method.is_exact] == ["exact"]


def test_every_key_of_the_sections_means_something_for_some_word():
    assert {name for names in DRAFTER_KEYS.values() for name in names} == set(Drafter.model_fields)
    keys = [name for method in ACCEPTANCE_METHODS.values() for name in method.parameters]
    assert ["method", *keys] == list(Verify.model_fields)  # and no two methods have one key
    assert {*KINDS_WITH_WEIGHTS, *MASKED} == {
        kind for kind, names in DRAFTER_KEYS.items() if {"model", "models"} & set(names)
    }
    assert {*KINDS_SHARING_TARGET_WEIGHTS} == {
        *MASKED,
        *(kind for kind, names in DRAFTER_KEYS.items() if "layers" in names),
    }
