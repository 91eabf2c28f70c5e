"""What the proof of drafts makes of a difference: a refusal with its place, or a near-tie that it lets pass."""

import re
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch

from speccompile.compiler.prove.best_nodes import check_best_nodes
from speccompile.compiler.prove.drafts import check_dynamic, check_tree
from speccompile.compiler.prove.schedule import Schedule
from speccompile.compiler.prove.schedule_runs import Recording
from speccompile.contract import Graph
from speccompile.errors import ProofError
from speccompile.tree import chain, from_paths
from tests.compile.table_drafter import TableDrafter, best_nodes, run

TABLE = torch.randn(9, 9, generator=torch.Generator().manual_seed(0))
TREE = from_paths([[0], [1], [0, 0], [0, 1], [1, 0]])
SCRIPT = Schedule([[3, 1, 4, 1, 5, 8, 2, 6], [2, 7, 1, 8, 2, 8, 1, 0]], [2, 1, 2, 1])
LONGEST = 32

CERTAIN, DRAWN = TableDrafter(TABLE, TREE), TableDrafter(TABLE, TREE, 4)
GRAPH, RIGHT = run(CERTAIN, SCRIPT)
DRAWN_GRAPH, DRAWN_RIGHT = run(DRAWN, SCRIPT)


def check(outputs, drafter=CERTAIN, graph=GRAPH, script=SCRIPT, **more):
    driven = Recording(graph, "a against b", script, outputs)
    return check_tree(driven, [drafter.teach], drafter.shape, LONGEST, **more)


def test_right_drafts_pass_and_are_counted():
    n_cases = 7  # four windows of two rows, in the first of which one is idle
    assert check(RIGHT)["values"] == n_cases * 5
    assert check(DRAWN_RIGHT, DRAWN, DRAWN_GRAPH)["values"] == n_cases * 3 * 4


@pytest.mark.parametrize(("drafter", "values"), [(CERTAIN, 5), (DRAWN, 3 * 4)])
def test_a_step_drafts_behind_the_path_that_it_made(drafter, values):
    script = replace(SCRIPT, rounds_at=3, rounds=(((1, 2, 3, 4, 5, 6),) * 2,))
    graph, outputs = run(drafter, script, fused=True)
    row = check(outputs, drafter, graph, script)
    assert (row["graph"], row["level"], row["values"]) == ("step", "a against b", (7 + 2) * values)
    for window in (3, 5):  # of the text, and of drafts
        wrong = deepcopy(outputs)
        wrong[window]["next_window"][0, 0] = 2
        message = f"^step, a against b, window {window}, row 0: the next window's first token is 2, expected 3"
        with pytest.raises(ProofError, match=message):
            check(wrong, drafter, graph, script)


def test_drafts_behind_the_longest_sequence_are_not_looked_at():
    wrong = deepcopy(RIGHT)
    wrong[3]["next_window"][0, 3:] = 0  # behind seven tokens and a draft
    assert check_tree(Recording(GRAPH, "a against b", SCRIPT, wrong), [CERTAIN.teach], TREE, 8)["values"] > 0
    with pytest.raises(ProofError):
        check(wrong)


def bonus(outputs):
    outputs[3]["next_window"][0, 0] = 7


def idle(outputs):
    outputs[0]["next_total"][1] = 6


def fewer(outputs):
    outputs[3]["next_total"][0] = 5


def swapped(outputs):
    outputs[3]["next_window"][0, 1:3] = outputs[3]["next_window"][0, [2, 1]]


def equal(outputs):
    outputs[3]["next_window"][0, 2] = outputs[3]["next_window"][0, 1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (bonus, "3, row 0: the next window's first token is 7, expected 2"),
        (idle, "0, row 1: the number of tokens in the next window is 6, expected 1"),
        (fewer, "3, row 0: the number of drafts is 4, expected 5"),
        (swapped, r"3, row 0: child 0 of node 0 is token \d, transformers' is \d; their logits lie \d.\d+ apart"),
        (equal, r"3, row 0: node 0 has the children \[(\d), \1\], expected different tokens"),
    ],
)
def test_a_wrong_window_is_told(change, message):
    wrong = deepcopy(RIGHT)
    change(wrong)
    with pytest.raises(ProofError, match=f"^draft, a against b, window {message}"):
        check(wrong)


def test_near_ties_pass():
    table = TABLE.clone()
    table[6] = torch.linspace(0, 1, 9)
    table[6, 7] = table[6, 8] + 1e-5
    drafter = TableDrafter(table, TREE)
    _, outputs = run(drafter, SCRIPT)
    drafter.table = table.clone()
    drafter.table[6, 7] -= 2e-5
    assert check(outputs, drafter)["values"] == 35


def unlikely_candidate(outputs):
    outputs["next_ids"][0, 0, 3] = int(TABLE[outputs["next_window"][0, 0]].argmin())


def more_probable(outputs):
    outputs["next_probs"][0, 0, 0] += 0.1


def other_child(outputs):
    outputs["next_window"][0, 1] = next(i for i in outputs["next_ids"][0, 0] if i not in outputs["next_window"][0, 1:3])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (unlikely_candidate, r"its candidates \[.*\] are not the best tokens in their order"),
        (more_probable, "its candidates' probabilities differ by 0.1 from transformers' at .*temperature=1.0"),
        (other_child, r"token \d is drawn by 0.\d+ from \{\d: 0.\d+, "),
    ],
)
def test_a_wrong_draw_is_told(change, message):
    wrong = deepcopy(DRAWN_RIGHT)
    change(wrong[1])  # temperature 1, no filter
    with pytest.raises(ProofError, match=f"^draft, a against b, window 1, row 0, node 0: {message}"):
        check(wrong, DRAWN, DRAWN_GRAPH)


def test_another_child_at_temperature_zero_is_told():
    wrong = deepcopy(DRAWN_RIGHT)
    wrong[0]["next_window"][0, 1:3] = wrong[0]["next_window"][0, [2, 1]]
    with pytest.raises(
        ProofError, match=r"^draft, a against b, window 0, row 0, node 0: children \[\d, \d\] at temperature 0, exp"
    ):
        check(wrong, DRAWN, DRAWN_GRAPH)


@pytest.mark.parametrize(("n_drafts", "message"), [(3, "is kept"), (0, "is left out")])
def test_a_draft_that_stops_at_the_wrong_place_is_told(n_drafts, message):
    drafter = TableDrafter(TABLE, chain(3))
    graph, outputs = run(drafter, SCRIPT)
    window = outputs[3]["next_window"][0]
    probabilities = [float(torch.softmax(TABLE[token], 0).max()) for token in window[:3]]
    fallback = 0.9 if n_drafts else min(probabilities) / 2
    outputs[3]["next_total"][0] = 1 + n_drafts
    text = f"^draft, a against b, window 3, row 0: draft 1 {message}, transformers gives it the probability "
    with pytest.raises(ProofError, match=f"{text}{re.escape(f'{probabilities[0]:.3g}')}, and drafting stops below"):
        check(outputs, drafter, graph, fallback=fallback)


DEPTH, TOP_K, NODES = 2, 3, 5


def dynamic(change=None, top_k=TOP_K, prove=check_dynamic):
    """Prove the right tree of every window, or with a change made to that of the last window's first row."""
    outputs = []
    for window in RIGHT[:-1]:
        tokens, parents = [], []
        for bonus in window["next_window"][:, 0].tolist():
            paths = [(), *best_nodes(TABLE.double().numpy(), bonus, DEPTH, top_k, NODES)]
            tokens.append([bonus, *(path[-1] for path in paths[1:])])
            parents.append([-1, *(paths.index(path[:-1]) for path in paths[1:])])
        n_total = np.where(window["next_total"] > 1, 1 + NODES, 1)
        outputs.append({"next_window": np.array(tokens), "next_parents": np.array(parents), "next_total": n_total})
    if change is not None:
        change(outputs[3])
    graph = Graph("draft", (), ())
    bounds = (DEPTH, TOP_K, LONGEST) if prove is check_dynamic else (DEPTH, LONGEST)
    return prove(Recording(graph, "a against b", SCRIPT, outputs), CERTAIN.teach, *bounds)


def test_the_best_nodes_pass():
    assert dynamic()["values"] == 7 * NODES


def worse(outputs):
    """Take the best node of those that were left out, in place of the last."""
    bonus = int(outputs["next_window"][0, 0])
    paths = [(), *best_nodes(TABLE.double().numpy(), bonus, DEPTH, TOP_K, NODES + 1)]
    outputs["next_window"][0, NODES] = paths[-1][-1]
    outputs["next_parents"][0, NODES] = paths.index(paths[-1][:-1])


def unlikely(outputs):
    outputs["next_window"][0, 1] = int(TABLE[outputs["next_window"][0, 0]].argmin())


def twice(outputs):
    outputs["next_window"][0, 2] = outputs["next_window"][0, 1]
    outputs["next_parents"][0, 1:3] = 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (worse, r"keeps a node of joint probability 0.\d+, where the 5 best have 0.\d+ and more"),
        (unlikely, r"drafts \[\d(, \d)*\], which is not among the best"),
        (twice, r"two of the drafts \[.*\] are one, expected different ones"),
        (lambda o: o["next_parents"].__setitem__((0, 1), 2), r"parents \[-1, 2, .*\], expected -1 and then nodes bef"),
        (lambda o: o["next_total"].__setitem__(0, 3), "the number of drafts is 3, expected 6"),
    ],
)
def test_a_wrong_dynamic_tree_is_told(change, message):
    with pytest.raises(ProofError, match=f"^draft, a against b, window 3, row 0: {message}"):
        dynamic(change)


def test_the_best_nodes_of_all_trees_pass():
    assert dynamic(top_k=len(TABLE), prove=check_best_nodes)["values"] == 7 * NODES


@pytest.mark.parametrize("change", [worse, unlikely])
def test_a_node_that_is_not_among_the_best_of_all_is_told(change):
    message = r"drafts \[\d(, \d)*\], of joint probability 0.\d+; the 5 best up to depth 2 have 0.\d+ and more"
    with pytest.raises(ProofError, match=f"^draft, a against b, window 3, row 0: {message}"):
        dynamic(change, len(TABLE), check_best_nodes)
