"""Log-probabilities of new tokens, against the toy target's own probabilities."""

import math

import numpy as np
import pytest

from speccompile.runtime.logprobs import chosen_logprobs
from speccompile.runtime.text import Text
from tests.light.fake_bundle import toy_bundle, toy_tokenizer
from tests.light.toy_models import autoregressive, logits

PROMPT = [3, 1, 4, 1, 5]

BUNDLES = {
    "chain": {},
    "fused": {"fused": True},
    "alone": {"speculative": False},
    "static": {"tree": "static"},
    "dynamic": {"tree": "dynamic", "fused": True},
}


def expected(prompt, tokens):
    """In closed form: the token's logit less the logarithm of the sum of all exponentials."""
    found, text = [], list(prompt)
    for token in tokens:
        scores = [float(score) for score in logits(text)]
        found.append(scores[token] - math.log(math.fsum(math.exp(score) for score in scores)))
        text.append(token)
    return found


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    file = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    toy_tokenizer().save(str(file))
    return Text(file)


@pytest.mark.parametrize("name", BUNDLES)
@pytest.mark.parametrize("sampling", [False, True], ids=["greedy", "sampling"])
def test_they_are_the_targets_own(name, sampling):
    bundle = toy_bundle(batch_size=3, prefill_chunk=4, sampling=sampling, **BUNDLES[name])
    options = {"temperature": [0, 2, 0.5], "seed": 3, "top_k": 4, "repetition_penalty": 1.2} if sampling else {}
    given = [PROMPT, [9], [7] * 11]
    for generation, prompt in zip(
        bundle.generate_batch(given, max_new_tokens=25, logprobs=True, **options), given, strict=True
    ):
        assert len(generation.token_ids) == 25
        assert generation.logprobs == pytest.approx(expected(prompt, generation.token_ids), abs=1e-6)
        assert generation.mean_accepted == 1 or max(generation.path_lengths) > 1
        assert generation.to_json()["logprobs"] == generation.logprobs


def test_drawn_drafts_have_them_too():
    bundle = toy_bundle(tree="static", sampling=True, sample=True)
    generation = bundle.generate(PROMPT, max_new_tokens=30, temperature=1, seed=1, logprobs=True)
    assert generation.logprobs == pytest.approx(expected(PROMPT, generation.token_ids), abs=1e-6)


def test_they_are_left_out_unless_asked_for():
    bundle = toy_bundle()
    bundle.generate(PROMPT, max_new_tokens=9, logprobs=True)
    generation = bundle.generate(PROMPT, max_new_tokens=9)
    assert generation.logprobs is None
    assert "logprobs" not in generation.to_json()
    assert not bundle.engine.wants_logits


def test_they_end_where_the_tokens_end(text):
    whole = toy_bundle(text).generate(PROMPT, max_new_tokens=40).text
    tokens = autoregressive(PROMPT, 40)
    for bundle, options in (
        (toy_bundle(text), {"stop": whole[9:11]}),
        (toy_bundle(eos_token_ids=(tokens[13],)), {}),
        (toy_bundle(max_length=20), {}),
        (toy_bundle(max_length=len(PROMPT)), {}),
    ):
        generation = bundle.generate(PROMPT, logprobs=True, **options)
        assert generation.finish_reason in ("stop", "capacity")
        assert generation.token_ids == tokens[: len(generation.token_ids)]
        assert generation.logprobs == pytest.approx(expected(PROMPT, generation.token_ids), abs=1e-6)


def test_no_precision_is_lost_on_the_host():
    large = np.full((1, 150_000), 1e4, np.float32)
    large[0, 7] = 1e4 + 1
    assert chosen_logprobs(large, [7]) == [pytest.approx(1 - math.log(149_999 + math.e), abs=1e-12)]
    assert chosen_logprobs(np.array([[0, -1e30], [1, 1]], np.float32), [0, 1]) == [0, -math.log(2)]
