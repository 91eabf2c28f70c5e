"""Texts in parts, and runs at few widths: counts and places, without any graph."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from speccompile.errors import EngineError
from speccompile.runtime.rounds.bound_graphs import BoundGraphs, VerifyPass, right_aligned_chunks
from speccompile.runtime.rounds.slots import check_path
from tests.light.fake_bundle import toy_manifest


def parts(size: int, overlap: int, *spans: range) -> list[list[tuple[int, int]]]:
    return [[(part.start, part.stop) for part in row] for row in right_aligned_chunks(spans, size, overlap)]


def test_a_part_begins_with_the_last_of_the_one_before():
    assert parts(4, 0, range(10)) == [[(0, 4)], [(4, 8)], [(8, 10)]]
    assert parts(4, 1, range(10)) == [[(0, 4)], [(3, 7)], [(6, 10)]]
    assert parts(4, 2, range(3, 11)) == [[(3, 7)], [(5, 9)], [(7, 11)]]
    assert parts(4, 1, range(4)) == [[(0, 4)]]
    assert parts(4, 1, range(5)) == [[(0, 4)], [(3, 5)]]
    assert parts(4, 1, range(1)) == [[(0, 1)]]
    assert parts(4, 1, range(0)) == []


def test_shorter_texts_begin_later():
    assert parts(4, 0, range(9), range(3)) == [[(0, 4), (0, 0)], [(4, 8), (0, 0)], [(8, 9), (0, 3)]]
    assert parts(4, 1, range(8), range(20, 25)) == [[(0, 4), (20, 20)], [(3, 7), (20, 24)], [(6, 8), (23, 25)]]


@pytest.mark.parametrize("overlap", range(3))
@pytest.mark.parametrize("size", [3, 4, 7])
@pytest.mark.parametrize("length", range(1, 20))
def test_every_token_is_given_and_none_but_the_last_few_again(size, overlap, length):
    own = [row[0] for row in right_aligned_chunks([range(length)], size, overlap)]
    assert (own[0].start, own[-1].stop) == (0, length)
    assert all(len(part) <= size for part in own)
    for before, after in pairwise(own):
        assert len(before) == size
        assert after.start == before.stop - overlap
        assert after.stop > before.stop


class Bound:
    """An engine that records its bindings."""

    supports_batch_slices = True

    def __init__(self) -> None:
        self.bound: list[tuple[str, dict[str, int], range]] = []

    def host_view(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        return np.zeros(shape, np.int64)

    def bind(self, graph, widths, optional=(), rows=None):
        self.bound.append((graph, dict(widths), rows))
        return lambda: None


@pytest.mark.parametrize(("tokens", "width"), [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (9, 16), (16, 16), (20, 16)])
def test_a_drafter_catches_up_in_few_widths_and_never_more_than_a_chunk(tokens, width):
    engine = Bound()
    rounds = BoundGraphs(engine, toy_manifest(batch_size=2, prefill_chunk=16))
    reading = rounds.catch_up(tokens, 2, range(1, 2))
    assert reading.path.shape == (2, width + 1)
    assert engine.bound == [("draft", {"window": width, "catch_up": width + 1, "history": 2}, range(1, 2))]
    assert rounds.catch_up(tokens, 2, range(1, 2)) is reading


def test_a_drafter_reads_what_a_round_may_accept_and_all_of_a_text():
    engine = Bound()
    rounds = BoundGraphs(engine, toy_manifest(batch_size=2))
    rounds.forward(5, 5, 1, fused=False, logprobs=False)
    rounds.forward(5, 5, 1, fused=False, logprobs=False, fed=True)
    rounds.forward(16, 1, 4, fused=False, logprobs=False, rows=range(1, 2), allowed=7)
    widths = [
        (widths["window"], widths["catch_up"], widths["history"], widths["allowed"]) for _, widths, _ in engine.bound
    ]
    assert widths == [(5, toy_manifest().catch_up, 1, 1), (5, 6, 1, 1), (16, 17, 4, 7)]
    assert [rows for *_, rows in engine.bound] == [range(2), range(2), range(1, 2)]


def test_logprobs_are_of_the_row_and_its_nodes():
    logits = np.log(np.array([[[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]], [[0.125, 0.125, 0.75], [0.25, 0.25, 0.5]]]))
    forward = SimpleNamespace(logits=logits.astype(np.float32), rows=range(3, 5), nodes=None)
    assert np.allclose(np.exp(VerifyPass.logprobs(forward, 3, [0, 1], 0).chosen), [0.5, 0.5])
    assert np.allclose(np.exp(VerifyPass.logprobs(forward, 4, [2], 0).chosen), [0.75])
    forward.nodes = np.array([[0, 1]] * 4 + [[1, 0]])
    assert np.allclose(np.exp(VerifyPass.logprobs(forward, 4, [0, 0], 0).chosen), [0.25, 0.125])


@pytest.mark.parametrize(("given", "accepted"), [(-1, -1), (2, 1), (1, 9), (2**63 - 1, 2**63 - 1)])
def test_counts_that_a_graph_cannot_have_are_refused(given, accepted):
    """Refuse also a count of given tokens that the graph wrote over."""
    with pytest.raises(EngineError, match=f"accepted {accepted} of 8 tokens, {given} of them given"):
        check_path(given, accepted, 8)
