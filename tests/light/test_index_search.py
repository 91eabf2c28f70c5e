"""Suffix arrays, the longest end of a text in a corpus, and votes on what follows: against brute force."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speccompile.drafters.retrieval.reference import Corpus
from speccompile.index.retrieval import RetrievalPolicy, RetrievalProposer
from speccompile.index.suffixes import suffix_array
from speccompile.index.votes import vote
from tests.light.index_example import LETTERS, chunk_tokens, ids, make_index

small = st.lists(st.integers(0, 3), min_size=1, max_size=80)
texts = st.text("abc", max_size=40)


def by_brute_force(tokens):
    return sorted(range(len(tokens)), key=lambda start: tokens[start:])


@given(small, st.integers(1, 6))
def test_suffixes_are_in_the_order_that_sorting_gives(tokens, times):
    tokens = tokens * times
    assert suffix_array(np.array(tokens, np.uint32)).tolist() == by_brute_force(tokens)


@pytest.mark.parametrize("tokens", [[7] * 300, [2**32 - 1, 0] * 50, list(range(200))[::-1], [5]])
def test_suffixes_of_texts_that_are_hard_to_sort(tokens):
    assert suffix_array(np.array(tokens, np.uint32)).tolist() == by_brute_force(tokens)


def occurrences(chunks, pattern):
    size = len(pattern)
    return [[at for at in range(len(chunk) - size + 1) if chunk[at : at + size] == pattern] for chunk in chunks]


@pytest.fixture(scope="module", params=[10**6, 60], ids=["one-chunk", "chunks"])
def index(request, tmp_path_factory):
    random = np.random.default_rng(3)
    documents = ["".join(random.choice(list("abcd"), 40)) for _ in range(8)] + ["abcabcabcabd", "a", "", "aaaaaaaaaa"]
    return make_index(tmp_path_factory.mktemp("index"), documents, chunk=request.param, batch=50)


@given(st.data())
@settings(max_examples=300)
def test_the_longest_end_is_found_wherever_it_stands(index, data):
    chunks = chunk_tokens(index)
    text = data.draw(st.lists(st.integers(0, 4), max_size=12))
    if data.draw(st.booleans()):  # of the corpus, so that long ends occur
        chunk = [token for token in data.draw(st.sampled_from(chunks)) if token < len(LETTERS)]
        start = data.draw(st.integers(0, len(chunk) - 1))
        text += chunk[start : start + 20]
    fewest, more = data.draw(st.integers(1, 3)), data.draw(st.integers(0, 10))
    found = index.longest_suffix_match(text, fewest, fewest + more)
    lengths = [n for n in range(fewest, min(fewest + more, len(text)) + 1) if any(occurrences(chunks, text[-n:]))]
    if not lengths:
        assert found is None
        return
    assert found.length == max(lengths)
    starts = [
        sorted(chunk.suffixes[list(its)].tolist()) for chunk, its in zip(index._chunks, found.places, strict=True)
    ]
    assert starts == occurrences(chunks, text[-found.length :])
    assert found.count == sum(map(len, starts))


def test_what_follows_ends_with_its_document(tmp_path):
    index = make_index(tmp_path, ["abc", "abde", "xab", "abh"])
    match = index.longest_suffix_match(ids("fab"), 1, 16)
    assert match.length == 2
    assert sorted(index.continuations(match, 100, 3)) == [[], ids("c"), ids("de"), ids("h")]
    assert sorted(index.continuations(match, 100, 1)) == [[], ids("c"), ids("d"), ids("h")]


@pytest.mark.parametrize("chunk", [10**6, 9])
def test_of_many_occurrences_some_are_asked_evenly(tmp_path, chunk):
    documents = ["a" + letter for letter in "bbbbccccddddeeee"]
    index = make_index(tmp_path, documents, chunk=chunk, batch=1)
    match = index.longest_suffix_match(ids("a"), 1, 1)
    assert match.count == 16
    assert Counter(row[0] for row in index.continuations(match, 4, 1)) == Counter(ids("bcde"))
    assert len(index.continuations(match, 7, 1)) == 7
    assert len(index.continuations(match, 1000, 1)) == 16


def prefixes(rows):
    return Counter(tuple(row[:size]) for row in rows for size in range(1, len(row) + 1))


def as_paths(tokens, parents):
    """Return every draft as the tokens from the text on."""
    paths = []
    for token, parent in zip(tokens, parents, strict=True):
        assert parent < len(paths)
        paths.append((*(paths[parent] if parent >= 0 else ()), token))
    return paths


@given(st.lists(st.lists(st.integers(0, 2), max_size=5), max_size=30), st.integers(1, 12))
def test_the_prefixes_with_most_votes_are_the_tree(rows, most):
    paths = as_paths(*vote(rows, most, 0))
    counts = prefixes(rows)
    assert len(set(paths)) == len(paths) == min(most, len(counts))
    votes = [counts[path] for path in paths]
    assert votes == sorted(counts.values(), reverse=True)[:most]
    assert [(-counts[path], len(path)) for path in paths] == sorted((-counts[path], len(path)) for path in paths)


@given(st.lists(st.lists(st.integers(0, 2), max_size=5), max_size=30), st.integers(1, 8))
def test_a_chain_follows_the_majority(rows, most):
    tokens, parents = vote(rows, most, 1)
    assert parents == list(range(-1, len(tokens) - 1))
    expected, left = [], rows
    while len(expected) < most:
        left = [row for row in left if row[: len(expected)] == expected and len(row) > len(expected)]
        counts = Counter(row[len(expected)] for row in left)
        if not counts:
            break
        expected.append(min(counts, key=lambda token: (-counts[token], token)))
    assert tokens == expected


def test_ties_have_rules():
    rows = [[5, 1], [3, 9], [3, 8], [5, 2]]
    assert vote(rows, 9, 0) == ([3, 5, 8, 9, 1, 2], [-1, -1, 0, 0, 1, 1])
    assert vote(rows, 9, 1) == ([3, 8], [-1, 0])
    assert vote([[1], [2], [3], [3], [2]], 9, 2) == ([2, 3], [-1, -1])


def test_retrieval_asks_a_shorter_end_where_nothing_follows_the_longest(tmp_path):
    index = make_index(tmp_path, ["abcd", "bcde", "bcdf", "bcdf"])
    assert RetrievalProposer(index, RetrievalPolicy(1, 16, 100, 1), 4, 4).propose(ids("abcd")) == (ids("f"), [-1])
    assert RetrievalProposer(index, RetrievalPolicy(1, 16, 100, 0), 4, 4).propose(ids("abcd")) == (ids("fe"), [-1, -1])
    assert RetrievalProposer(index, RetrievalPolicy(4, 16, 100, 1), 4, 4).propose(ids("abcd")) == ([], [])
    assert RetrievalProposer(index, RetrievalPolicy(1, 16, 100, 1), 4, 4).propose(ids("g")) == ([], [])
    assert RetrievalProposer(index, RetrievalPolicy(2, 16, 100, 1), 4, 4).propose(ids("a")) == ([], [])


@given(st.data())
@settings(max_examples=100)
def test_drafts_are_those_of_the_reference(index, data):
    """Search for pieces of the corpus, whole and changed, with all policies."""
    fewest, branching = data.draw(st.integers(1, 3)), data.draw(st.integers(0, 2))
    policy = RetrievalPolicy(fewest, fewest + data.draw(st.integers(0, 9)), data.draw(st.integers(1, 9)), branching)
    text = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=12))
    chunk = [token for token in data.draw(st.sampled_from(chunk_tokens(index))) if token < len(LETTERS)]
    start = data.draw(st.integers(0, len(chunk) - 1))
    text += chunk[start : start + data.draw(st.integers(0, 14))]
    drafts, depth = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 4))
    expected = Corpus(index.folder, policy).propose(text, drafts, depth)
    assert RetrievalProposer(index, policy, drafts, depth).propose(text) == expected
