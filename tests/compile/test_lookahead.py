"""Lookahead and Jacobi in eager torch: rounds worked by hand, and its reference over random rounds."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from speccompile.compiler.prove.plain_drafts import SlotRound
from speccompile.compiler.step.draft import Accepted, Drafted
from speccompile.drafters.jacobi.drafter import Jacobi
from speccompile.drafters.jacobi.reference import iterate
from speccompile.drafters.lookahead.drafter import Lookahead
from speccompile.drafters.lookahead.nodes import lay_out
from speccompile.drafters.lookahead.pool import BUCKETS, NgramPool
from speccompile.drafters.lookahead.reference import Windows
from speccompile.tree import chain

VOCABULARY = 11


def said(token: int) -> int:
    """Return a target that chooses by the last token alone."""
    return (3 * token + 1) % VOCABULARY


class Rounds:
    """A drafter, and what it is told of one row: a text, then rounds in which `accepted` drafts came true."""

    def __init__(self, drafter: Lookahead) -> None:
        self.drafter, self.length = drafter, 0
        self.states = [torch.zeros(state.shape, dtype=state.dtype) for state in drafter.states()]

    def read(self, path: list[int], rows: list[int]) -> list[int]:
        """path: what was committed, and the bonus token; rows: the tokens at the rows of logits. Returns the window."""
        ranked = torch.tensor([[[said(token)] for token in rows]])
        counts = torch.tensor([len(path) - 1]), torch.tensor([self.length])
        found: Drafted = self.drafter(
            Accepted(torch.tensor([path]), *counts, successors=ranked, row_tokens=torch.tensor([rows])), self.states
        )
        self.states, self.length = found.states, self.length + len(path) - 1
        assert found.n_total.tolist() == [1 + self.drafter.tokens]
        return found.window[0].tolist()

    def pooled(self, token: int) -> list[list[int]]:
        guesses, there = self.drafter.pool.find(self.states[1], torch.tensor([token]))
        return guesses[0][there[0]].tolist()


def split(drafter: Lookahead, window: list[int]) -> tuple[list[list[int]], list[list[int]]]:
    """Return the window's levels and the guesses, by the nodes of the tree."""
    layout = drafter.layout
    return tuple([[window[node] for node in row] for row in rows] for rows in (layout.window, layout.guesses))


def test_the_tree_is_a_window_and_guesses():
    layout = lay_out(3, 4, 2)
    assert layout.tree.drafts == 2 + 2 * 3 + 2 * 3
    depths = [[layout.tree.depths[node] for node in row] for row in layout.window]
    assert depths == [[0, 1, 2], [1, 2, 3], [2, 3, 4]]  # where each token stands behind the root
    seen = [sorted(layout.tree.depths[each] for each in layout.tree.root_paths[node]) for node in layout.window[2]]
    assert seen == [[0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3, 4]]
    for level in (1, 2):
        for column, node in enumerate(layout.window[level]):
            assert layout.tree.parents[node] == layout.window[level - 1][column]
    for ngram in layout.guesses:
        assert [layout.tree.parents[node] for node in ngram] == [0, *ngram[:-1]]
    nodes = [node for row in (*layout.window, *layout.guesses) for node in row]
    assert sorted(nodes) == list(range(layout.tree.drafts + 1))
    assert lay_out(7, 5, 7).tree.drafts == 6 + 3 * 7 + 7 * 4


def test_rounds_by_hand():
    rounds = Rounds(Lookahead(lay_out(2, 3, 2), VOCABULARY, 1))
    # Behind 5 6 5 7 5 stands 8. The text's n-grams enter the pool, those that came last in front.
    window = rounds.read([5, 6, 5, 7, 5, 8], [5])
    assert rounds.pooled(5) == [[7, 5], [6, 5]]  # 5 6 5, then 5 7 5
    assert rounds.pooled(6) == [[5, 7]]
    assert rounds.pooled(7) == [[5, 8]]
    # The levels are runs of the text's end, 7 5 8: [7 5], of which the root stands in the place of 7, and [5 8].
    # Nothing is known behind 8: the guesses are any tokens, here the root's.
    assert split(rounds.drafter, window) == ([[8, 5], [5, 8]], [[8, 8], [8, 8]])
    # All of it is refused; the target says 3 behind 8, and behind the last level, 5 and 8: 16 % 11 = 5 and 25 % 11 = 3.
    window = rounds.read([8, 3], window)
    assert rounds.pooled(8) == [[5, 5]]  # column 0: the root, 5, and 5 behind that
    assert rounds.pooled(5) == [[8, 3], [7, 5]]  # column 1 came last; 6 5 has gone
    assert split(rounds.drafter, window) == ([[3, 8], [5, 3]], [[3, 3], [3, 3]])
    # The pool has nothing behind 3 yet. The columns are 3 5 and 8 3, which go on with said(5) = 5 and said(3) = 10.
    window = rounds.read([3, 8], window)
    assert rounds.pooled(3) == [[5, 5]]
    assert rounds.pooled(8) == [[3, 10], [5, 5]]
    assert split(rounds.drafter, window) == ([[8, 3], [5, 10]], [[3, 10], [5, 5]])
    # The first guess comes true, and 9 stands behind it. So the text has 8 3 10 and 3 10 9; the columns are 8 5 and
    # 3 10, behind which the target says 5 and 9.
    rounds.read([8, 3, 10, 9], window)
    assert rounds.pooled(8) == [[5, 5], [3, 10]]  # both were known: each once, the last in front
    assert rounds.pooled(3) == [[10, 9], [5, 5]]


def test_rounds_without_drafts_leave_the_window():
    rounds = Rounds(Lookahead(lay_out(2, 3, 2), VOCABULARY, 1))
    window = rounds.read([5, 6, 5, 7, 5, 8], [5])
    kept = rounds.states[0].flatten()[1:].clone()  # the first stands for the root, and is never read
    again = rounds.read([8, 3], [8])  # one row: nothing was drafted
    assert torch.equal(kept, rounds.states[0].flatten()[1:])
    assert (again[0], split(rounds.drafter, again)[0][1]) == (3, split(rounds.drafter, window)[0][1])


@given(
    sizes=st.tuples(st.integers(2, 4), st.integers(2, 5), st.integers(1, 3)),
    text=st.lists(st.integers(0, VOCABULARY - 1), min_size=2, max_size=20),
    chunk=st.integers(2, 9),
    steps=st.lists(st.tuples(st.booleans(), st.integers(0, VOCABULARY - 1), st.integers(0, 2)), max_size=8),
)
def test_rounds_are_those_of_the_reference(sizes, text, chunk, steps):
    rounds, plain, known = Rounds(Lookahead(lay_out(*sizes), VOCABULARY, 1)), Windows(*sizes, 1), text[:1]

    def read(path: list[int], rows: list[int]) -> list[int]:
        known[-1:] = path
        slot = SlotRound(list(known), rounds.length, rows=[(token, [said(token)]) for token in rows])
        (expected,) = plain([slot])
        window = rounds.read(path, rows)
        assert window == [path[-1], *expected.tokens]
        return window

    for start in range(0, len(text) - 1, chunk):
        path = text[start : start + chunk + 1]
        window = read(path, path[-2:-1])
    for drafted, token, accepted in steps:
        window = read([window[0], *[token] * (accepted + 1 if drafted else 1)], window if drafted else window[:1])


def test_rows_share_the_pool_and_none_has_half_a_list():
    pool = NgramPool(VOCABULARY, 2, 3)
    empty = torch.zeros(pool.shape, dtype=torch.int64)
    first, second, other = [[5, 1, 1], [5, 2, 2]], [[5, 3, 3], [5, 3, 3]], [[6, 1, 1], [7, 1, 1]]
    valid = torch.ones(3, 2, dtype=torch.bool)
    found = pool.add(empty, torch.tensor([first, second, other]), valid)
    guesses, there = pool.find(found, torch.tensor([5, 6, 8]))
    assert there.tolist() == [[True, False], [True, False], [False, False]]
    assert (guesses[0, 0].tolist(), guesses[1, 0].tolist()) == ([3, 3], [1, 1])
    assert pool.add(empty, torch.tensor([first, second, other]), ~valid).equal(empty)


def test_tokens_that_share_a_list_do_not_find_each_other_and_numbers_are_tokens():
    pool = NgramPool(3 * BUCKETS, 2, 2)
    ngrams = torch.tensor([[[7, 1], [7 + BUCKETS, 2], [7 + 2 * BUCKETS, 3]]])
    found = pool.add(torch.zeros(pool.shape, dtype=torch.int64), ngrams, torch.ones(1, 3, dtype=torch.bool))
    there = [pool.find(found, ngrams[0, :, 0])[1].any(1).tolist()]
    assert there == [[False, True, True]]  # the first had to go
    wild = torch.randint(-(2**40), 2**40, pool.shape)
    guesses, _ = pool.find(wild, torch.arange(50))
    assert guesses.min() >= 0
    assert guesses.max() < 3 * BUCKETS


def test_jacobi_drafts_what_was_said_behind_what_was_refused():
    drafter = Jacobi(chain(4))

    def drafted(path: list[int], rows: list[int], width: int) -> list[int]:
        rows = rows + [-1] * (width - len(rows))
        ranked = torch.tensor([[[said(token) if token >= 0 else 0] for token in rows]])
        counts = torch.tensor([len(path) - 1]), torch.tensor([9])
        given = Accepted(torch.tensor([path]), *counts, successors=ranked, row_tokens=torch.tensor([rows]))
        window = drafter(given, []).window[0].tolist()
        slot = SlotRound([0] * 9 + path, 9, rows=[(token, [said(token)]) for token in rows])
        assert window[1:] == iterate(slot, 4).tokens
        return window

    rows = [4, 2, 9, 1, 6]
    behind = [said(token) for token in rows]  # 2, 7, 6, 4, 8
    assert behind == [2, 7, 6, 4, 8]
    # 2 was right; 7 comes behind it, and 6, 4, 8 are what was said of the others.
    assert drafted([4, 2, 7], rows, 5) == [7, 6, 4, 8, 8]
    assert drafted([4, 2, 9, 1, 6, 8], [4, 2, 9, 1, 6], 5) == [8, 8, 8, 8, 8]  # all were right: the last, repeated
    assert drafted([4, 2, 7], [4, 2, 9], 3) == [7, 6, 6, 6, 6]  # a narrower window
    assert drafted([3, 1, 4, 2], [4], 5) == [2, 2, 2, 2, 2]  # a text, beside rows that draft
    assert drafted([3, 1, 4, 2], [4], 1) == [2, 2, 2, 2, 2]
