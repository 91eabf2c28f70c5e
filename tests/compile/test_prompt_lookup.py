"""Prompt lookup in eager torch, against plain Python."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from speccompile.compiler.step.draft import Accepted, Drafted
from speccompile.drafters.prompt_lookup.drafter import PromptLookup
from speccompile.tree import Tree, chain, from_branching, from_paths

ROWS = 40
TREES = [chain(1), chain(6), from_branching([2, 1]), from_branching([1, 2, 2]), from_paths([[0], [1], [2], [1, 0]])]


def matches(text: list[int], ngram: int) -> list[int]:
    """Return where matches of the text's end stop: the longest first, of equals the latest."""
    last, found = len(text) - 1, []
    for end in range(last):
        size = 0
        while size < min(ngram, end + 1) and text[end - size] == text[last - size]:
            size += 1
        found += [(size, end)] if size else []
    return [end for _, end in sorted(found, reverse=True)]


def copied(text: list[int], end: int, n_drafts: int) -> list[int]:
    """Return what follows a match, whose period is repeated at the text's end."""
    longer = list(text)
    for _ in range(n_drafts):
        longer.append(longer[len(longer) - (len(text) - 1 - end)])
    return longer[len(text) :]


def drafts_in_python(text: list[int], ngram: int, tree: Tree) -> list[int] | None:
    """Return the drafts, path by path: the first path that reaches a node decides its token. None without a match."""
    ends, drafts = matches(text, ngram), {}
    if not ends:
        return None
    leaves = [node for node, children in enumerate(tree.children) if not children]
    for number, leaf in enumerate(leaves):
        lineage = tree.root_paths[leaf][1:]
        tokens = copied(text, ends[number] if number < len(ends) else ends[0], len(lineage))
        for node, token in zip(lineage, tokens, strict=True):
            drafts.setdefault(node, token)
    return [drafts[node] for node in range(1, tree.drafts + 1)]


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
    found, expected = drafted(text, ngram, tree, chunk), drafts_in_python(text, ngram, tree)
    assert found.window[0, 0] == text[-1]
    assert found.n_total[0] == (1 if expected is None else 1 + tree.drafts)
    if expected is not None:
        assert found.window[0, 1:].tolist() == expected
