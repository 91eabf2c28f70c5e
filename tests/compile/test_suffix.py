"""Suffix matching in eager torch, against SuffixDecoding's policy written out in plain Python."""

import math
from collections import Counter
from fractions import Fraction
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from speccompile.compiler.step.draft import Accepted
from speccompile.compiler.step.draft.votes import SuffixPolicy
from speccompile.drafters.suffix.drafter import OCCURRENCES
from tests.compile.suffix_drafters import UNLIMITED, drafts, read, suffix_chain, suffix_tree
from tests.compile.test_prompt_lookup import copied, matches

Path = tuple[int, ...]


class Trie(NamedTuple):
    """What followed the occurrences of one suffix, the best first. matched: its tokens."""

    matched: int
    followed: list[Path]

    def ranked_children(self, path: Path) -> list[Path]:
        """Return the children with most votes first; of equals, the one that followed the best occurrence."""
        votes = Counter(each[: len(path) + 1] for each in self.followed if each[: len(path)] == path)
        return [child for child, _ in votes.most_common()]  # a Counter keeps the order in which they came

    def share(self, path: Path) -> Fraction:
        return Fraction(sum(each[: len(path)] == path for each in self.followed), len(self.followed))


def tries(text: list[int], match: int, depth: int) -> list[Trie]:
    """Return tries of the longest suffixes with 1, 2, 4, .. occurrences."""
    ends = matches(text, match)[:OCCURRENCES]
    followed = [tuple(copied(text, end, depth)) for end in ends]
    sizes = [
        next(n for n in range(match, 0, -1) if text[end + 1 - n : end + 1] == text[len(text) - n :] and n <= end + 1)
        for end in ends
    ]
    supports = [1 << power for power in range(OCCURRENCES.bit_length())]
    least = [sizes[count - 1] for count in supports if count <= len(sizes)]
    return [Trie(m, [each for each, size in zip(followed, sizes, strict=True) if size >= m]) for m in least]


def best_nodes(trie: Trie, policy: SuffixPolicy, nodes: int, depth: int) -> list[Path]:
    """Return the most probable nodes, in the order of their probability, then of their depth, then of their
    occurrence."""
    found, front = [], [()]
    for _ in range(depth):
        front = [child for path in front for child in trie.ranked_children(path)[: policy.top_k]]
        found += [path for path in front if trie.share(path) >= policy.threshold]
    budget = max(0, min(nodes, math.floor(policy.factor * trie.matched + policy.offset)))
    place = {path: next(i for i, each in enumerate(trie.followed) if each[: len(path)] == path) for path in found}
    return sorted(found, key=lambda path: (-trie.share(path), len(path), place[path]))[:budget]


def expected_paths(text: list[int], policy: SuffixPolicy, nodes: int, depth: int) -> list[Path]:
    best, most = [], Fraction(-1)
    for trie in tries(text, policy.match, depth):
        paths = best_nodes(trie, policy, nodes, depth)
        score = sum((trie.share(path) for path in paths), Fraction(0))
        if score > most + Fraction(nodes, 1 << 16):  # what rounding to whole numbers may lose
            best, most = paths, score
    return best


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
@given(text=texts, tokens=st.integers(1, 5), match=st.integers(1, 6))
def test_looking_again_is_one_vote_after_the_other(text: list[int], tokens: int, match: int) -> None:
    longer = list(text)
    for _ in range(tokens):
        paths = expected_paths(longer, SuffixPolicy(match, 0.0, 1.0, 0.0), 1, 1)
        if not paths:
            break
        longer += paths[0]
    found = read(suffix_chain(tokens, SuffixPolicy(match, 0.0, 99.0, 0.0), again=True), text)
    assert drafts(found) == longer[len(text) :]


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
