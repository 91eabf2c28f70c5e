"""Suffix matching in eager torch, against its reference."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from speccompile.compiler.prove.plain_drafts import SlotRound
from speccompile.compiler.step.draft import Accepted
from speccompile.compiler.step.draft.votes import SuffixPolicy
from speccompile.drafters.suffix.reference import Votes
from speccompile.plan.plan import SuffixPlan
from tests.compile.suffix_drafters import UNLIMITED, drafts, read, suffix_chain, suffix_tree

Path = tuple[int, ...]


def expected_paths(text: list[int], policy: SuffixPolicy, nodes: int, depth: int) -> list[Path]:
    """Return the drafts of the reference, from the root on."""
    plan = SuffixPlan(policy.match, policy.factor, policy.offset, False, 0)
    votes = Votes(plan, policy.threshold, policy.top_k, depth, nodes, is_chain=False)
    ((tokens, parents),) = votes([SlotRound(text, 0)])
    assert parents is not None
    paths: list[Path] = [()]
    for token, parent in zip(tokens, parents, strict=True):
        assert token is not None
        paths.append((*paths[parent], token))
    return paths[1:]


texts = st.lists(st.integers(0, 3), min_size=1, max_size=40)
policies = st.builds(
    SuffixPolicy,
    match=st.integers(1, 9),
    factor=st.sampled_from([0.0, 0.5, 1.0, 2.0]),
    offset=st.sampled_from([0.0, 1.0, 9.0]),
    threshold=st.sampled_from([0.0, 0.125, 0.375, 0.75]),
    top_k=st.integers(1, 3),
)


@settings(max_examples=150)
@given(text=texts, policy=policies, tokens=st.sampled_from([1, 4, 6]))
def test_a_chain_follows_the_votes(text: list[int], policy: SuffixPolicy, tokens: int) -> None:
    policy = SuffixPolicy(policy.match, policy.factor, policy.offset, policy.threshold)
    paths = expected_paths(text, policy, tokens, tokens)
    found = read(suffix_chain(tokens, policy), text)
    assert drafts(found) == (list(paths[-1]) if paths else [])
    assert found.window[0, 0] == text[-1]


@settings(max_examples=150)
@given(text=texts, policy=policies, shape=st.sampled_from([(4, 2), (9, 3), (12, 6)]))
def test_a_tree_has_the_most_probable_nodes(text: list[int], policy: SuffixPolicy, shape: tuple[int, int]) -> None:
    nodes, depth = shape
    found = read(suffix_tree(nodes, depth, policy), text)
    paths: list[Path] = [()]
    for parent, token in zip(found.parents[0, 1 : int(found.n_total[0])].tolist(), drafts(found), strict=True):
        paths.append((*paths[parent], token))  # a node stands behind its parent
    assert paths[1:] == expected_paths(text, policy, nodes, depth)
    assert found.parents[0, 0] == -1
    assert ((found.parents[0, 1:] >= 0) & (found.parents[0, 1:] <= nodes)).all()


@settings(max_examples=100)
@given(
    text=texts, tokens=st.integers(1, 5), match=st.integers(1, 6), factor=st.sampled_from([0.0, 1.0]),
    threshold=st.sampled_from([0.0, 0.375]),
)  # fmt: skip
def test_looking_again_is_one_vote_after_the_other(
    text: list[int], tokens: int, match: int, factor: float, threshold: float
) -> None:
    found = read(suffix_chain(tokens, SuffixPolicy(match, factor, 2.0, threshold), again=True), text)
    votes = Votes(SuffixPlan(match, factor, 2.0, True, 0), threshold, 1, tokens, tokens)
    assert drafts(found) == votes([SlotRound(text, 0)])[0].tokens


def test_looking_again_follows_other_occurrences() -> None:
    """Follow 7 8 by 1 2 alone; after 1 2, most places continue otherwise than after 7 8 1 2."""
    text = [1, 2, 3, 4, 9, 1, 2, 3, 5, 9, 7, 8, 1, 2, 6, 9, 7, 8]
    policy = SuffixPolicy(2, 0.0, 9.0, 0.0)
    assert drafts(read(suffix_chain(4, policy), text)) == [1, 2, 6, 9]
    assert drafts(read(suffix_chain(4, policy, again=True), text))[:3] != [1, 2, 6]


def test_many_that_agree_outvote_longer_matches_that_do_not() -> None:
    """9 and 8 followed 0 1 2 once each; 5 6 7 often followed 1 2."""
    text = [3, 1, 2, 5, 6, 7] * 5 + [0, 1, 2, 9, 9, 9, 0, 1, 2, 8, 8, 8] + [0, 1, 2]
    assert drafts(read(suffix_chain(3), text)) == [5, 6, 7]
    assert drafts(read(suffix_chain(3), [*text[:-9], 0, 1, 2])) == [9, 9, 9]


@pytest.mark.parametrize(
    ("policy", "count"), [(UNLIMITED, 6), (SuffixPolicy(8, 1.0, 0.0, 0.1), 2), (SuffixPolicy(8, 1, 2, 0.1), 4)]
)
def test_the_length_follows_the_match(policy: SuffixPolicy, count: int) -> None:
    text = [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2]
    assert drafts(read(suffix_chain(6, policy), text)) == [3, 4, 5, 6, 7, 8][:count]


def test_nothing_is_drafted_without_a_match_and_for_an_idle_row() -> None:
    drafter = suffix_chain(4, batch=2)
    paths = torch.tensor([[1, 2, 3, 4], [1, 1, 1, 1]])
    states = [torch.ones(state.shape, dtype=state.dtype) for state in drafter.states()]
    found = drafter(Accepted(paths, torch.tensor([3, 0]), torch.tensor([0, 0])), states)
    assert found.n_total.tolist() == [1, 1]
    assert found.window[0].tolist() == [4, 0, 0, 0, 0]
