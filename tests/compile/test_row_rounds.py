"""Every drafter's rounds over some rows of a batch: bit for bit what these rows get beside others, and in a bundle for
one row; and nothing of another row is touched."""

import pytest

from speccompile.bundle import open_bundle
from speccompile.bundle.buffers import buffers
from speccompile.contract import BATCH
from tests.compile.combinations import BATCH_SIZE, FIRST, ON_STATES, REASON, Combination, every, is_tried
from tests.compile.row_rounds import differing, is_shared, play, shares_a_table
from tests.suite.selection import sweep_but

WIDER = ("model", "suffix")
"""Drafters whose bundles have a slot more, so that ranges begin and end in the middle."""


def _one_of_each():
    """Return the last combination of every drafter's table, which samples where it can, and all on states."""
    exact = [each for each in every() if each.exact and is_tried(each)]
    return [*{each.drafter: each for each in exact}.values(), *ON_STATES]


PAIRED = next(each for each in FIRST if each.drafter == "eagle3" and not each.pair)
"""A combination whose rows pair features with tokens, in a bundle of other tests."""
RING = Combination("suffix", "chain", False, "greedy", "exact")
"""A combination whose rows share a ring."""
CASES = [PAIRED, RING, *(each for each in _one_of_each() if each not in (PAIRED, RING))]


@pytest.fixture(scope="module")
def bundle(workshop):
    return lambda combination, batch_size: workshop.bundle(combination, batch_size=batch_size)


@pytest.mark.parametrize("combination", sweep_but([PAIRED], CASES, REASON), ids=str)
def test_rows_get_alone_what_they_get_beside_others(bundle, combination):
    size = BATCH_SIZE + (combination.drafter in WIDER)
    folder = bundle(combination, size)
    manifest = open_bundle(folder, verify=False).manifest
    alone = shares_a_table(manifest.graphs)
    assert all(each.shape[:1] == (BATCH,) for each in buffers(manifest.graphs) if is_by_row(each))
    whole = play(folder, range(size))
    assert whole.others == []
    for rows in (range(size - 1), range(1, 2), range(size - 1, size)):
        some = play(folder, rows, windows=whole.windows)
        assert some.others == []
        assert [differing(some, whole, row, verified_alone=alone) for row in rows] == [[]] * len(rows)
    single = play(bundle(combination, 1), range(1), first=1, windows=whole.windows)
    assert differing(single, whole, 1, verified_alone=alone) == []


def is_by_row(buffer) -> bool:
    return buffer.name not in ("logit_rows", "catch_up", "pairs") and not is_shared(buffer.name)
