"""The numpy filters against transformers' own logits processors."""

import numpy as np
import pytest

from speccompile.bundle.sampling import SamplingParams
from speccompile.compiler.prove.filters import Reference, adjusted, described, options, possible, shaped, unfiltered
from speccompile.compiler.prove.processors import probabilities

SETTINGS = (
    SamplingParams(1.0),
    SamplingParams(0.3),
    SamplingParams(1.7, top_k=1),
    SamplingParams(0.7, top_k=5),
    SamplingParams(1.0, top_k=1000),
    SamplingParams(1.0, top_p=0.8),
    SamplingParams(1.2, top_p=0.01),
    SamplingParams(1.3, min_p=0.1),
    SamplingParams(1.0, min_p=1.0),
    SamplingParams(0.9, repetition_penalty=1.4),
    SamplingParams(0.9, repetition_penalty=0.7),
    SamplingParams(0.8, top_k=12, top_p=0.9, min_p=0.02, repetition_penalty=1.3),
)


@pytest.mark.parametrize("sampling", SETTINGS, ids=str)
@pytest.mark.parametrize("size", [7, 24, 500])
def test_filters_are_those_of_transformers(sampling, size):
    random = np.random.default_rng(size)
    for spread in (0.5, 3.0):
        logits = (spread * random.normal(size=size)).astype(np.float32)
        tokens = random.integers(0, size, 9).tolist()
        found, expected = shaped(logits, tokens, sampling), probabilities(logits, tokens, sampling)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-15)
        assert found.sum() == pytest.approx(1.0)
        assert possible(unfiltered(logits, tokens, sampling), sampling)[found > 0].all()


def test_equally_probable_tokens_pass_together():
    logits = np.log(np.array([0.4, 0.2, 0.2, 0.2], np.float32))
    assert shaped(logits, [0], SamplingParams(1.0, top_k=2)) == pytest.approx([0.4, 0.2, 0.2, 0.2])
    assert shaped(logits, [0], SamplingParams(1.0, top_p=0.5)) == pytest.approx([0.4, 0.2, 0.2, 0.2])


def test_what_rounding_may_let_through_is_possible():
    probabilities = np.array([0.5, 0.2995, 0.2, 0.0005])
    assert possible(probabilities, SamplingParams(1.0, top_p=0.799)).tolist() == [True, True, True, False]
    assert possible(probabilities, SamplingParams(1.0, top_p=0.79)).tolist() == [True, True, False, False]
    close = np.array([0.4, 0.30001, 0.3, 0.0])
    assert possible(close, SamplingParams(1.0, top_k=2)).tolist() == [True, True, True, False]


def test_adjustments_are_openai_s_formula():
    """Tokens of the prompt do not count; a bias may meet a penalty."""
    bare = Reference("zeros", lambda texts: [np.zeros(4, np.float32) for _ in texts])
    sampling = SamplingParams(1.0, frequency_penalty=0.5, presence_penalty=0.25, logit_bias=((0, -3.0), (3, 2.0)))
    found = adjusted(bare, sampling, 2).logits([[1, 1], [1, 1, 2], [1, 1, 3, 2, 3]])
    assert [row.tolist() for row in found] == [[-3, 0, 0, 2], [-3, 0, -0.75, 2], [-3, 0, -0.75, 0.75]]
    assert {row.dtype for row in found} == {np.dtype("float32")}
    assert adjusted(bare, SamplingParams(1.0), 2) is bare


def test_settings_are_named_by_what_they_change():
    sampling = SamplingParams(0.7, top_k=5, seed=3)
    assert described(sampling) == {"temperature": 0.7, "top_k": 5}
    assert options(sampling) == {
        "temperature": 0.7, "top_k": 5, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0,
        "frequency_penalty": 0.0, "presence_penalty": 0.0, "logit_bias": {},
    }  # fmt: skip
