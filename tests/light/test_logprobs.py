"""Log-probabilities of new tokens, against the toy target's own probabilities."""

import math

import numpy as np
import pytest

from speccompile.errors import UsageError
from speccompile.runtime.logprobs import find_logprobs
from tests.light.fake_bundle import toy_bundle
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
    """Return it in closed form: the token's logit less the logarithm of the sum of all exponentials."""
    found, text = [], list(prompt)
    for token in tokens:
        scores = [float(score) for score in logits(text)]
        found.append(scores[token] - math.log(math.fsum(math.exp(score) for score in scores)))
        text.append(token)
    return found


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
    assert find_logprobs(large, [7]).chosen == [pytest.approx(1 - math.log(149_999 + math.e), abs=1e-12)]
    assert find_logprobs(np.array([[0, -1e30], [1, 1]], np.float32), [0, 1]).chosen == [0, -math.log(2)]


def test_the_best_tokens_and_theirs():
    bundle = toy_bundle(batch_size=2, prefill_chunk=4)
    alone = bundle.generate(PROMPT, max_new_tokens=12, top_logprobs=3)
    assert bundle.generate_batch([[9], PROMPT], max_new_tokens=12, top_logprobs=3)[1].top_logprobs == alone.top_logprobs
    text = list(PROMPT)
    for token, own, best in zip(alone.token_ids, alone.logprobs, alone.top_logprobs, strict=True):
        scores = logits(text)
        order = sorted(range(len(scores)), key=lambda each: (-scores[each], each))[:3]
        assert [found for found, _ in best] == order
        assert [value for _, value in best] == pytest.approx([expected(text, [each])[0] for each in order], abs=1e-6)
        assert (token, own) == best[0]
        text.append(token)
    assert alone.to_json()["top_logprobs"] == alone.top_logprobs
    assert "top_logprobs" not in bundle.generate(PROMPT, max_new_tokens=1, logprobs=True).to_json()


def test_of_equal_tokens_the_lower_is_the_better():
    (best,) = find_logprobs(np.array([[1, 3, 2, 3, 3]], np.float32), [0], 2).best
    assert [token for token, _ in best] == [1, 3]


@pytest.mark.parametrize("asked", [-1, 259, 1.5, True, "3"])
def test_a_count_of_best_tokens_that_is_none(asked):
    with pytest.raises(UsageError, match=r"top_logprobs: received .*, expected a whole number from 0 to 258") as caught:
        toy_bundle().generate(PROMPT, top_logprobs=asked)
    assert caught.value.hint


def test_a_stop_string_cuts_the_best_ones_too(text):
    whole = toy_bundle(text).generate(PROMPT, max_new_tokens=30, top_logprobs=2)
    cut = toy_bundle(text).generate(PROMPT, max_new_tokens=30, top_logprobs=2, stop=whole.text[3:6])
    assert len(cut.token_ids) < 30
    assert cut.top_logprobs == whole.top_logprobs[: len(cut.token_ids)]
