"""Recipe -> Lookahead and Jacobi: the tree of a window, and what no window holds."""

import pytest

from speccompile.errors import RecipeError
from speccompile.recipe import TreePlan, load_recipe, make_plan


@pytest.fixture
def plan(make_recipe):
    return lambda **drafter: make_plan(load_recipe(make_recipe(drafter=drafter)))


def test_the_authors_window(plan):
    drafter = plan(kind="lookahead").drafter
    assert (drafter.lookahead, drafter.tokens, drafter.successors, drafter.sample) == ((7, 5, 7), 55, 1, False)
    assert (drafter.tree.kind, drafter.tree.depth) == ("static", 9)
    assert drafter.to_json()["lookahead"] == [7, 5, 7]


@pytest.mark.parametrize(
    ("sizes", "drafts", "depth"),
    [((2, 2, 1), 2, 1), ((2, 3, 2), 7, 2), ((2, 8, 1), 20, 7), ((15, 5, 15), 119, 17), ((32, 2, 32), 63, 31)],
)
def test_drafts_of_a_window(plan, sizes, drafts, depth):
    window, level, guesses = sizes
    drafter = plan(kind="lookahead", window=window, level=level, guesses=guesses).drafter
    assert drafter.tokens == drafts == window - 1 + (level - 2) * window + guesses * (level - 1)
    assert drafter.tree.depth == depth


@pytest.mark.parametrize(
    ("drafter", "message"),
    [
        (
            {"window": 16, "guesses": 17},
            "drafter.window: received more nodes than the window holds: 131 drafts of a window of 16 with level 5, and "
            "17 guesses, expected at most 127",
        ),
        ({"guesses": 32}, "drafter.guesses: received more nodes than the window holds: 155 drafts of a window of 7"),
        ({"window": 1}, "drafter.window: received 1, expected a whole number from 2 to 32"),
        ({"level": 1}, "drafter.level: received 1, expected a whole number from 2 to 8"),
        ({"guesses": 0}, "drafter.guesses: received 0, expected a whole number from 1 to 32"),
        ({"tokens": 4}, "drafter.tokens: received a key that means nothing for this drafter"),
        ({"tree": [2]}, "drafter.tree: received a key that means nothing for this drafter"),
        ({"sample": False}, "drafter.sample: received a key that means nothing for this drafter"),
    ],
)
def test_windows_that_cannot_be(plan, drafter, message):
    with pytest.raises(RecipeError) as caught:
        plan(kind="lookahead", **drafter)
    assert message in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize("key", ["window", "level", "guesses"])
def test_its_keys_are_its_own(plan, key):
    with pytest.raises(
        RecipeError, match=f"drafter.{key}: .* expected it only with drafter.kind lookahead, not jacobi"
    ):
        plan(kind="jacobi", **{key: 4})


def test_jacobi_drafts_a_chain(plan):
    drafter = plan(kind="jacobi", tokens=6).drafter
    assert (drafter.tree, drafter.successors) == (TreePlan("chain", (-1, 0, 1, 2, 3, 4, 5), 6), 1)
    with pytest.raises(RecipeError, match=r"drafter.tree: received a static tree, which drafter.kind jacobi cannot do"):
        plan(kind="jacobi", tree=[2])
