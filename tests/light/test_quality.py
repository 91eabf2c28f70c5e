"""Loss by a precision: its figures against closed forms, the teacher's logits against toy models."""

import numpy as np
import pytest

from speccompile.compiler.prove import quality
from speccompile.errors import ProofError
from tests.light.fake_bundle import toy_bundle, toy_manifest
from tests.light.toy_engine import ToyEngine
from tests.light.toy_models import VOCABULARY, logits

TEXTS = [[1, 2, 3, 1], [2, 2]]
P, Q = np.array([0.5, 0.25, 0.125, 0.125]), np.array([0.25, 0.25, 0.25, 0.25])


def blocks(*rows: np.ndarray) -> list[quality.Block]:
    """Return blocks of one position each, the last first: results must not depend on order and size."""
    return [(place, np.log(row)[None].astype(np.float32) + place) for place, row in enumerate(rows)][::-1]


def predictions(rows, texts=TEXTS, size=4):
    return quality.predictions(blocks(*rows), texts, size, "the toy")


def test_perplexity_is_that_of_the_closed_form():
    """Tokens 2, 3, 1 and 2 are predicted: the first of a text is not."""
    found = predictions([P, Q, P, P])
    np.testing.assert_allclose(found.losses, np.log([8, 4, 4, 8]), rtol=1e-6)
    assert found.perplexity == pytest.approx((8 * 4 * 4 * 8) ** 0.25)
    assert predictions([Q] * 4).perplexity == pytest.approx(4)
    assert found.best.tolist() == [0, 0, 0, 0]


def test_agreement_is_that_of_the_closed_form():
    other = np.array([0.2, 0.4, 0.2, 0.2])
    row = quality.agreement(predictions([Q, P, P, other]), predictions([P, P, P, P]))
    divergence = ((P * np.log(P / Q)).sum() + (P * np.log(P / other)).sum()) / 4
    assert row["kl_divergence"] == pytest.approx(divergence, abs=1e-6)
    assert row["same_argmax"] == 0.75
    assert row["perplexity"] == pytest.approx((4 * 8 * 4 * 5) ** 0.25, abs=1e-4)
    same = quality.agreement(predictions([P] * 4), predictions([P] * 4))
    assert (same["kl_divergence"], same["same_argmax"]) == (0, 1)


def test_the_divergence_is_from_float32():
    """Compute the divergence in one direction: it is not symmetric."""
    other = np.array([0.7, 0.1, 0.1, 0.1])
    forward = quality.agreement(predictions([other] * 4), predictions([P] * 4))["kl_divergence"]
    back = quality.agreement(predictions([P] * 4), predictions([other] * 4))["kl_divergence"]
    assert forward == pytest.approx((P * np.log(P / other)).sum(), abs=1e-6)
    assert back == pytest.approx((other * np.log(other / P)).sum(), abs=1e-6)
    assert abs(forward - back) > 0.01


def test_a_token_that_float32_excludes_adds_nothing():
    never = np.array([0.5, 0.25, 0.25, 0])
    texts = [[0, 1, 2]]
    with np.errstate(divide="ignore"):
        row = quality.agreement(predictions([never] * 2, texts), predictions([never] * 2, texts))
    assert (row["kl_divergence"], row["same_argmax"]) == (0, 1)


def test_rounding_makes_no_negative_divergence():
    one = predictions([P] * 4)
    other = one._replace(logprobs=one.logprobs + np.float32(2e-7))
    assert str(quality.agreement(other, one)["kl_divergence"]) == "0.0"


def test_large_logits_are_no_trouble():
    rows = [(0, np.array([[1e4, 1e4 - 1, 0, 0]], np.float32))]
    assert quality.predictions(rows, [[0, 1]], 4, "the toy").losses == pytest.approx(np.log(1 + np.e))


@pytest.mark.parametrize("at_a_time", [1, 8, 1 << 20])
def test_blocks_of_many_positions_are_taken_in_parts(at_a_time, monkeypatch):
    random = np.random.default_rng(0).dirichlet(np.ones(4), 4)
    expected = predictions(random)
    monkeypatch.setattr(quality, "_AT_A_TIME", at_a_time)
    whole = [(0, np.log(random).astype(np.float32))]
    found = quality.predictions(whole, TEXTS, 4, "the toy")
    np.testing.assert_allclose(found.losses, expected.losses, rtol=1e-6)
    np.testing.assert_allclose(found.logprobs, expected.logprobs, rtol=1e-6)
    np.testing.assert_array_equal(found.best, expected.best)


@pytest.mark.parametrize(("kept", "places"), [(16, [0, 1, 2, 3]), (15, [0, 2]), (8, [0, 2]), (7, [0, 3]), (4, [0])])
def test_few_positions_are_kept_of_many(kept, places, monkeypatch):
    """Keep positions at equal distances, and at most as many numbers as the limit."""
    monkeypatch.setattr(quality, "MAX_STORED_LOGPROBS", kept)
    random = np.random.default_rng(0).dirichlet(np.ones(4), 4)
    found = predictions(random)
    np.testing.assert_allclose(found.logprobs, np.log(random[places]), rtol=1e-5)
    assert found.perplexity == pytest.approx(np.exp(-np.log(random[range(4), [2, 3, 1, 2]]).mean()))


@pytest.mark.parametrize(("wrong", "value"), [(np.nan, "nan"), (0.0, "inf")])
def test_a_loss_that_is_no_number_is_an_error(wrong, value):
    row = np.array([0.5, wrong, 0.25, 0.25])
    message = rf"^the toy gives the token behind position 2 of the texts a loss of {value}, expected a number$"
    with np.errstate(divide="ignore"), pytest.raises(ProofError, match=message) as caught:
        predictions([P, P, row, P])
    assert caught.value.hint


class WholeWindows(ToyEngine):
    """Commits all rows of a chain's window as they stand, as the compiled graphs do."""

    def _commit(self, name, row, length, tokens, width):
        window = self.host_view("window", (self.batch, width))[row].tolist()
        super()._commit(name, row, length, window, width)


@pytest.mark.parametrize("chunk", [1, 5, 16, 500])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"batch_size": 3},
        {"batch_size": 2, "sampling": True, "sample": True},
        {"speculative": False},
        {"tree": "static", "batch_size": 2},
        {"tree": "dynamic", "sampling": True},
        {"tree": "static", "fused": True, "sampling": True, "sample": True},
    ],
)
def test_every_position_has_the_logits_of_its_text(changes, chunk):
    """Compare for several drafts, batches of texts, and widths of windows."""
    manifest = toy_manifest(prefill_chunk=500, **changes)
    engine = (ToyEngine if "tree" in changes else WholeWindows)(manifest)
    verify = next(graph for graph in manifest.graphs if graph.name == "verify")
    random = np.random.default_rng(1)
    texts = [random.integers(0, 256, size).tolist() for size in (2, 40, 17, 5, 33)]
    found = {}
    for start, rows in quality.engine_logits(engine, verify, texts, chunk):
        assert not any(start + place in found for place in range(len(rows)))
        found |= {start + place: row for place, row in enumerate(rows)}
    expected = [logits(text[:end]) for text in texts for end in range(1, len(text))]
    np.testing.assert_array_equal([found[place] for place in range(len(expected))], expected)
    assert len(found) == len(expected)


def test_windows_are_no_wider_than_their_logits_may_be(monkeypatch):
    bundle = toy_bundle(batch_size=2)
    monkeypatch.setattr(quality, "_LOGITS", 2 * VOCABULARY * 3)
    verify = bundle.manifest.graphs[0]
    blocks = quality.engine_logits(WholeWindows(bundle.manifest), verify, [[1] * 9, [2] * 9], 16)
    assert max(len(rows) for _, rows in blocks) == 3
