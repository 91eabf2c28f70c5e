"""Rows that are constrained, over graphs that are arithmetic: each token is the first allowed one, counted on from what
the target would have said, with drafts and without, beside rows that are free."""

import numpy as np
import pytest

pytest.importorskip("llguidance")

from speccompile.errors import UsageError
from speccompile.runtime import Bundle
from tests.native.toy_onnx import continuation, first_allowed, said_after, write_arithmetic_bundle

END = 257
CASES = {
    "choice": ["alpha", "alphabet", "beta"],
    "regex": "[0-9]{2,4}-[a-f]{3,9}x?",
    "grammar": 'start: "say the words " word ("," word)* "."\nword: /[a-z]{1,4}/',
    "json_schema": {"type": "object", "properties": {"kind": {"enum": ["person", "people"]}}, "required": ["kind"]},
}
KINDS = {"drafted": {}, "fused": {"fused": True}, "alone": {"drafts": False}, "sampled": {"samples": True}}


@pytest.fixture(scope="module", params=KINDS)
def bundle(request, tmp_path_factory) -> Bundle:
    folder = tmp_path_factory.mktemp("bundle") / "b"
    write_arithmetic_bundle(folder, constrained=True, eos_token_ids=(END,), **KINDS[request.param])
    return Bundle.open(folder, threads=1)


def expected(bundle: Bundle, kind: str, prompt: list[int], most: int) -> list[int]:
    """Return what the target says by itself, one token after the other, with a matcher of its own."""
    matcher, text = bundle.constraint(kind, CASES[kind]).matcher(frozenset([END])), list(prompt)
    while len(text) < len(prompt) + most:
        token = first_allowed(said_after(text), matcher.mask())
        text.append(token)
        matcher.accept_tokens([token])
        if token == END or matcher.end:
            break
    return text[len(prompt) :]


PROMPTS = ([5, 6, 7], list(range(30, 49)), [77])


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize(
    "options", [{"adaptive": False}, {}, {"autoregressive": True}], ids=["fixed", "paced", "alone"]
)
def test_every_token_is_the_first_that_is_allowed(bundle, kind, options):
    constraint = bundle.constraint(kind, CASES[kind])
    rows = bundle.generate_batch(PROMPTS, max_new_tokens=40, constraint=constraint, **options)
    for prompt, row in zip(PROMPTS, rows, strict=True):
        assert row.token_ids == expected(bundle, kind, prompt, 40)


@pytest.mark.parametrize("place", range(3))
def test_rows_beside_it_are_free(bundle, place):
    given = [None, None, None]
    given[place] = bundle.constraint("choice", CASES["choice"])
    rows = bundle.generate_batch(PROMPTS, max_new_tokens=20, constraint=given, adaptive=False)
    for number, (prompt, row) in enumerate(zip(PROMPTS, rows, strict=True)):
        free = continuation(prompt, 20)
        free = free[: free.index(END) + 1] if END in free else free
        assert row.token_ids == (expected(bundle, "choice", prompt, 20) if number == place else free)


def test_with_logprobs_every_token_has_its_own(bundle):
    """Tokens without an alternative too, which would else be taken without a run."""
    constraint = bundle.constraint("grammar", CASES["grammar"])
    for row in bundle.generate_batch(PROMPTS, max_new_tokens=30, constraint=constraint, logprobs=True, adaptive=False):
        assert len(row.logprobs) == len(row.token_ids)
        assert np.isfinite(row.logprobs).all()


def test_without_drafts_a_single_token_without_alternative_costs_no_run(bundle):
    """Write any number of forced tokens without a run, as a round without drafts gives one token."""
    constraint = bundle.constraint("grammar", 'start: /[x-z]/ "d" /[x-z]/ "d" /[x-z]/ "d"')
    alone = bundle.generate([77], max_new_tokens=9, constraint=constraint, autoregressive=True)
    assert (len(alone.token_ids), alone.rounds, alone.finish_reason) == (6, 2, "stop")


def test_a_text_is_cut_where_there_is_no_more_room(bundle):
    constraint = bundle.constraint("grammar", CASES["grammar"])
    for most in range(1, 8):
        (row,) = bundle.generate_batch(PROMPTS[:1], max_new_tokens=most, constraint=constraint)
        assert row.token_ids == expected(bundle, "grammar", PROMPTS[0], most)
        assert (len(row.token_ids), row.finish_reason) == (most, "length")


def test_a_bundle_without_constraints_takes_none(tmp_path, bundle):
    constraint = bundle.constraint("choice", "a")
    other = Bundle.open(write_arithmetic_bundle(tmp_path / "b", eos_token_ids=(END,)), threads=1)
    with pytest.raises(UsageError, match="received one of another bundle"):
        other.generate([1, 2], constraint=constraint)
    with pytest.raises(UsageError, match="this bundle was built without constraints"):
        other.constraint("choice", "a")
