"""Prompt lookup in eager torch against its reference in plain Python, and that against transformers' own."""

import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from transformers.generation.candidate_generator import PromptLookupCandidateGenerator

from speccompile.compiler.prove.lookups import Lookup
from speccompile.compiler.step.draft import Accepted, Drafted
from speccompile.drafters.prompt_lookup.drafter import PromptLookup
from speccompile.drafters.prompt_lookup.reference import match_length
from speccompile.tree import Tree, chain, from_branching, from_paths

ROWS = 40
TREES = [chain(1), chain(6), from_branching([2, 1]), from_branching([1, 2, 2]), from_paths([[0], [1], [2], [1, 0]])]


def drafted(text: list[int], ngram: int, tree: Tree, chunk: int) -> Drafted:
    """Return what the module gives after the text, read in chunks; its last token is the bonus token."""
    drafter = PromptLookup(tree, ngram, 1, ROWS)
    states = [torch.full((1, ROWS), 99)]
    for start in range(0, max(1, len(text) - 1), chunk):
        path = text[start : min(start + chunk, len(text) - 1) + 1]
        given = Accepted(torch.tensor([path]), torch.tensor([len(path) - 1]), torch.tensor([start]))
        found = drafter(given, states)
        states = found.states
    return found


@given(
    text=st.lists(st.integers(0, 3), min_size=1, max_size=24),
    ngram=st.integers(1, 5),
    tree=st.sampled_from(TREES),
    chunk=st.integers(1, 9),
)
def test_prompt_lookup_copies_what_followed_the_best_matches(text, ngram, tree, chunk):
    found, (expected, matched) = drafted(text, ngram, tree, chunk), Lookup(tree, ngram).find(text)
    assert found.window[0, 0] == text[-1]
    assert found.n_total[0] == (1 + tree.drafts if matched else 1)
    if matched:
        assert found.window[0, 1:].tolist() == expected


@given(text=st.lists(st.integers(0, 5), min_size=2, max_size=24), ngram=st.integers(1, 4), count=st.integers(1, 5))
def test_the_reference_drafts_what_transformers_does(text, ngram, count):
    """Compare where one match is the longest: of several, transformers takes the first. Its copy ends with the text."""
    sizes = [match_length(text[: place + 1], text, ngram) for place in range(len(text) - 1)]
    assume(max(sizes) > 0)
    assume(sizes.count(max(sizes)) == 1)
    peer = PromptLookupCandidateGenerator(num_output_tokens=count, max_matching_ngram_size=ngram, max_length=99)
    candidates, _ = peer.get_candidates(torch.tensor([text]))
    expected = candidates[0, len(text) :].tolist()
    assert expected
    assert Lookup(chain(count), ngram).find(text)[0][: len(expected)] == expected
