"""Prompts that are too long: refused, or cut on the left."""

import pytest

from speccompile.errors import PromptError, UsageError
from tests.light.fake_bundle import toy_bundle

LONG = [number % 7 for number in range(200)]


def test_a_long_prompt_is_refused_with_both_numbers():
    with pytest.raises(PromptError, match="200 tokens, more than this bundle's capacity of 160") as error:
        toy_bundle().generate(LONG, max_new_tokens=20)
    assert "--truncate left" in error.value.hint


@pytest.mark.parametrize(("new", "kept"), [(20, 140), (1, 159), (159, 1), (500, 1)])
def test_the_first_tokens_are_dropped(new, kept, caplog):
    bundle = toy_bundle()
    generation = bundle.generate(LONG, max_new_tokens=new, truncate="left")
    assert (generation.prompt_tokens, generation.truncated_tokens) == (kept, 200 - kept)
    assert generation.token_ids == bundle.generate(LONG[-kept:], max_new_tokens=new).token_ids
    assert [r.getMessage() for r in caplog.records if "dropped" in r.getMessage()] == [
        f"note: the first {200 - kept} of 200 prompt tokens are dropped, so that the new ones fit"
    ]
    assert generation.to_json()["truncated_tokens"] == 200 - kept


def test_a_prompt_that_fits_stays_whole():
    generation = toy_bundle().generate(LONG[:140], max_new_tokens=20, truncate="left")
    assert (generation.prompt_tokens, generation.truncated_tokens) == (140, 0)
    assert "truncated_tokens" not in generation.to_json()


def test_other_values_are_refused():
    with pytest.raises(UsageError, match="truncate: received 'right', expected 'left' or None"):
        toy_bundle().generate([1], truncate="right")
