"""What the proof makes of looked-up drafts that are wrong: a refusal with its place."""

import numpy as np
import pytest

from speccompile.compiler.prove.drafts import Case, DrafterInputs
from speccompile.compiler.prove.lookups import CascadeView, DraftedFor, Lookup, check_drafted_for
from speccompile.compiler.prove.schedule import Schedule, ScheduledWindow
from speccompile.compiler.prove.schedule_runs import Recording
from speccompile.contract import Graph
from speccompile.errors import ProofError
from speccompile.tree import chain, from_branching

TEXT = [5, 1, 2, 3, 4, 9, 1, 2]
"""Its end, 1 2, stood before 3 4 9."""
TAIL, GATE = Lookup(chain(2), 3), Lookup(chain(3), 3, match=2)
WINDOW = ScheduledWindow({}, {}, [1], [0], drafted=False)


def case(drafts, size=6, **outputs):
    window = np.array([[TEXT[-1], *drafts, *[0] * (size - len(drafts))]])
    outputs |= {"next_window": window, "next_total": np.array([1 + len(drafts)])}
    return Case("here", 0, DrafterInputs(TEXT), WINDOW, outputs)


def own(beside, drafts, **outputs):
    found = beside(case(drafts, **outputs))
    return None if found is None else found.tokens[1 : int(found.outputs["next_total"][0])]


def test_a_tail_is_taken_away():
    beside = CascadeView(chain(3), TAIL, None)
    assert own(beside, [7, 7, 5, 1, 2]) == [7, 7, 5]
    assert own(beside, [5, 1, 2]) == [5], "where the drafter stopped early"
    assert own(beside, [7, 8]) == [7, 8], "where nothing matches"


def test_what_went_through_a_gate_is_nobody_s_but_the_lookup_s():
    assert own(CascadeView(chain(3), TAIL, GATE), [3, 4, 9]) is None
    assert own(CascadeView(chain(3), None, Lookup(chain(3), 3, match=3)), [7, 7, 7]) == [7, 7, 7]
    tree = from_branching([2, 1])
    assert own(CascadeView(tree, None, Lookup(tree, 2, match=1)), [3, 3, 4, 4]) is None


def table(*rows):
    """Return rows of (candidates, probabilities), for drafts 1, 2, .."""
    ids, probs = zip(*rows, strict=True)
    return {"next_ids": np.array([ids]), "next_probs": np.array([probs], np.float32)}


SURE = table(([3, 4, 5], [1, 0, 0]), ([4, 5, 6], [1, 0, 0]), ([9, 0, 1], [1, 0, 0]))


@pytest.mark.parametrize(
    ("then", "gate", "drafts", "outputs", "message"),
    [
        (TAIL, None, [7, 7, 5, 1, 3], {}, "5 drafts without the tail that a lookup finds behind them, .* another one"),
        (TAIL, None, [7, 7, 5], {}, r"3 drafts without the tail that a lookup finds behind them, \[1, 2\], or with"),
        (TAIL, None, [7, 7, 7, 5, 1, 2], {}, "4 drafts are not looked up, expected 3"),
        (None, GATE, [3, 4], {}, "the number of drafts that are looked up is 2, expected 3"),
        (None, GATE, [3, 4, 8], {}, r"\[3, 4, 8\] are looked up behind 0 drafts, expected \[3, 4, 9\]"),
        (
            None, GATE, [3, 4, 9], SURE | table(*[([3, 4, 5], [0.5, 0.5, 0])] * 3),
            r"node 0: candidates \[3, 4, 5\] of probabilities \[0.5, 0.5, 0.0\], expected 3 alone, which is certain",
        ),
        (
            None, GATE, [3, 4, 9], SURE | {"next_ids": np.array([[[3, 4, 4]] * 3])},
            r"node 0: candidates \[3, 4, 4\] of probabilities",
        ),
    ],
)  # fmt: skip
def test_wrong_drafts_are_told(then, gate, drafts, outputs, message):
    with pytest.raises(ProofError, match=f"^here.*{message}"):
        CascadeView(chain(3), then, gate)(case(drafts, **outputs))


def test_certain_drafts_that_say_so_pass():
    assert own(CascadeView(chain(3), None, GATE), [3, 4, 9], **SURE) is None


NEXT = {2: 3, 3: 4, 4: 6, 6: 1, 1: 2}
"""What a model says after each token."""
INNER = DraftedFor(Lookup(chain(2), 3), 2, 1.0)


def says(fed, drafts):
    rows = np.zeros((1 + len(drafts), 10), np.float32)
    for row, token in zip(rows, [fed.known[-1], *drafts], strict=True):
        row[NEXT.get(token, 0)], row[8] = 1, 0.7
    return rows


def passes(drafts, inner=INNER, tokens=6):
    """Return passes of the drafts after TEXT, in a graph that was driven over one window."""
    outputs = {"next_window": np.array([[TEXT[-1], *drafts]]), "next_total": np.array([1 + len(drafts)])}
    script = Schedule([[*TEXT, 0]], [len(TEXT) - 1])
    return check_drafted_for(Recording(Graph("draft", (), ()), "a", script, [outputs, {}]), says, inner, tokens, 32)


def test_drafts_of_a_model_that_is_drafted_for_pass():
    """3 is its own; behind it 4 and 9 stood, of which it takes 4. 6 is its own; nothing matches. Then 1."""
    assert passes([3, 4, 6, 1])["values"] == 4
    assert passes([3, 4], tokens=2)["values"] == 2
    lenient = DraftedFor(INNER.lookup, 2, 0.6)
    with pytest.raises(
        ProofError, match="draft 3, token 9, was looked up and not taken; transformers' logit lies 1 be"
    ):
        passes([3, 4, 6, 1], DraftedFor(INNER.lookup, 2, 0.3))
    assert passes([3, 4, 6, 1], lenient)["values"] == 4


@pytest.mark.parametrize(
    ("drafts", "message"),
    [
        ([3, 4, 9, 0, 0], "draft 3, token 9, was looked up and taken; transformers' logit lies 1 below the best"),
        ([7, 4, 6, 1], "draft 1 is token 7, transformers' is 3; their logits lie 1 apart"),
        ([3, 4, 6], "3 drafts, expected 4 at least"),
        ([3, 4, 6, 1, 2], "the number of drafts is 5, expected 4"),
        ([3, 6, 1], "draft 2 is token 6, transformers' is 4; their logits lie 1 apart"),
    ],
)
def test_wrong_drafts_of_a_model_that_is_drafted_for_are_told(drafts, message):
    with pytest.raises(ProofError, match=f"^draft, a, window 0, row 0: {message}"):
        passes(drafts)
