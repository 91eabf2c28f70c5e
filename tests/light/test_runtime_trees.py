"""Trees over a toy engine: the target's own tokens, whatever the tree and however many drafts there are."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.light.fake_bundle import toy_bundle
from tests.light.toy_engine import DYNAMIC, STATIC
from tests.light.toy_models import VOCABULARY, autoregressive, candidates

PROMPT = [3, 1, 4, 1, 5]

prompts = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=20)


def tree_lengths(prompt, count, tree_of):
    """Return tokens verified in each round: the longest branch of drafts that are right, and the bonus token."""
    text, lengths = [*prompt, *autoregressive(prompt, 1)], []
    while len(text) < len(prompt) + count:
        right = autoregressive(text, 8)
        tree, node, accepted = tree_of(text), 0, 0
        while True:
            drafted = candidates(text + right[:accepted]) if text[-1] % 11 else []
            children = dict(zip(drafted, tree.children[node], strict=False))
            if right[accepted] not in children:
                break
            node, accepted = children[right[accepted]], accepted + 1
        lengths.append(accepted + 1)
        text += right[: accepted + 1]
    return lengths


@pytest.mark.parametrize(
    ("tree", "tree_of"), [("static", lambda text: STATIC), ("dynamic", lambda text: DYNAMIC[text[-1] % 2])]
)
@pytest.mark.parametrize("fused", [False, True], ids=["separate", "fused"])
def test_every_row_gets_the_targets_own_tokens(tree, tree_of, fused):
    @given(st.lists(prompts, min_size=1, max_size=4), st.integers(1, 16), st.integers(1, 30), st.integers(0, 2))
    @settings(max_examples=40)
    def check(rows, chunk, count, idle_rows):
        bundle = toy_bundle(
            tree=tree, fused=fused, prefill_chunk=chunk, batch_size=len(rows) + idle_rows, max_length=32
        )
        for speculative in (True, False, True):
            generations = bundle.generate_batch(
                rows, max_new_tokens=count, autoregressive=not speculative, adaptive=False
            )
            for prompt, generation in zip(rows, generations, strict=True):
                room = min(count, 32 - len(prompt))
                assert generation.token_ids == autoregressive(prompt, room)
                if speculative:
                    assert generation.path_lengths == tree_lengths(prompt, room, tree_of)

    check()


def test_a_branch_beside_the_best_is_accepted():
    chain, tree = (
        toy_bundle(tree=tree).generate(PROMPT, max_new_tokens=60, adaptive=False) for tree in ("chain", "static")
    )
    assert tree.token_ids == chain.token_ids
    assert tree.mean_accepted > chain.mean_accepted
    assert max(tree.path_lengths) == STATIC.depth + 1


def test_what_was_drafted_before_is_forgotten():
    """Reset the parents of the last generation's drafts before the next prompt."""
    bundle = toy_bundle(tree="dynamic")
    parents, seen = bundle.engine.host_view("parents", (1, bundle.manifest.tokens + 1)), []
    parents[:] = 99
    taken = bundle.engine._verify_row

    def watch(row, widths):
        seen.append(parents[0].tolist())
        taken(row, widths)

    bundle.engine._verify_row = watch
    assert bundle.generate(PROMPT, max_new_tokens=10).token_ids == autoregressive(PROMPT, 10)
    assert seen[0] == list(range(-1, bundle.manifest.tokens))
