"""The keys of drafter.kind suffix: what they become, and what is refused."""

import pytest

from speccompile.errors import RecipeError
from speccompile.plan.plan import SuffixPlan
from speccompile.recipe import load_recipe, make_plan


@pytest.fixture
def drafter(make_recipe):
    def drafter(cache=None, **keys):
        path = make_recipe(drafter={"kind": "suffix"} | keys, **({"cache": cache} if cache else {}))
        return make_plan(load_recipe(path, ())).drafter

    return drafter


@pytest.mark.parametrize(
    ("keys", "suffix", "threshold"),
    [
        ({}, SuffixPlan(8, 0.0, 4.0, False, 0), 0.1),
        ({"tokens": 7, "match": 16}, SuffixPlan(16, 0.0, 7.0, False, 0), 0.1),
        ({"factor": 2}, SuffixPlan(8, 2.0, 0.0, False, 0), 0.1),
        ({"offset": 1.5, "threshold": 0}, SuffixPlan(8, 1.0, 1.5, False, 0), 0.0),
        ({"look_again": True, "remember": 64}, SuffixPlan(8, 0.0, 4.0, True, 64), 0.1),
    ],
)
def test_all_that_is_drafted_is_drafted_unless_the_recipe_limits_it(drafter, keys, suffix, threshold):
    decided = drafter(**keys)
    assert (decided.suffix, decided.threshold, decided.sample, decided.ngram) == (suffix, threshold, False, None)
    assert decided.to_json()["suffix"]["match"] == suffix.match


def test_a_tree_says_how_much_is_drafted(drafter):
    decided = drafter(tree={"depth": 3, "top_k": 2, "nodes": 8})
    assert (decided.tokens, decided.tree.kind, decided.suffix.offset) == (8, "dynamic", 8.0)


@pytest.mark.parametrize(
    ("keys", "message", "hint"),
    [
        ({"look_again": True, "tree": {"depth": 3, "top_k": 2, "nodes": 8}},
         "drafter.look_again: received true beside a tree, expected it with a chain alone", "drafter.tree to chain"),
        ({"remember": 100, "cache": {"batch_size": 2}},
         "drafter.remember: received 100, expected 128 tokens or more for the 2 rows of cache.batch_size", "raise it"),
        ({"remember": 63}, "drafter.remember: received 63, expected a whole number of tokens from 64 to 65536", "4096"),
        ({"factor": 0.1},
         r"drafter.factor: received 0.1 tokens for each of a match and 0.0 more, .* expected one token or more for a "
         "match of 8", "raise factor"),
        ({"offset": -8.0}, r"drafter.offset: received 1.0 tokens for each of a match and -8.0 more", "raise offset"),
        ({"tree": [2, 1]}, "drafter.tree: received a static tree, which drafter.kind suffix cannot do", "dynamic"),
        ({"match": 65}, "drafter.match: received 65, expected a whole number from 1 to 64", "match: [2, 16]"),
        ({"ngram": 3}, "drafter.ngram: .* expected it only with drafter.kind prompt_lookup, not suffix", "remove"),
        ({"sample": True}, "drafter.sample: received a key that means nothing for this drafter", "remove"),
    ],
)  # fmt: skip
def test_what_means_nothing_is_refused(drafter, keys, message, hint):
    with pytest.raises(RecipeError, match=message) as caught:
        drafter(**keys)
    assert hint in caught.value.hint


@pytest.mark.parametrize("key", [{"match": 8}, {"factor": 1.0}, {"look_again": False}, {"remember": 4096}])
def test_other_kinds_have_none_of_these_keys(make_recipe, key):
    (name,) = key
    path = make_recipe(drafter={"kind": "prompt_lookup"} | key)
    with pytest.raises(RecipeError, match=f"drafter.{name}: .* expected it only with drafter.kind suffix"):
        make_plan(load_recipe(path, ()))


def test_no_answers_are_remembered_where_drafts_change_tokens(make_recipe):
    recipe = make_recipe(drafter={"kind": "suffix", "remember": 4096}, verify={"method": "typical"})
    with pytest.raises(RecipeError, match=r"drafter.remember: received 4096, beside verify.method typical") as caught:
        make_plan(load_recipe(recipe))
    assert caught.value.hint == "remove it, or set verify.method to exact"
