"""The proof of distributions: right rules pass it, and every wrong one is caught."""

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from speccompile.bundle.sampling import SamplingParams
from speccompile.compiler.prove.counts import Drawn, first_two
from speccompile.compiler.prove.distribution import SETTINGS, Request, check, draw_all, make_prompt, sample_count
from speccompile.compiler.prove.filters import Reference
from speccompile.errors import ProofError
from tests.light.toy_sampler import DEPTH, Rules, ToyBundle, reference

REQUEST = Request((*SETTINGS, SamplingParams(1.3, min_p=0.1)), 3000, 2 + DEPTH)
RIGHT = {
    "drawn chain": Rules(),
    "certain chain": Rules(certain=True),
    "drawn siblings": Rules(siblings=3),
    "certain siblings": Rules(siblings=3, certain=True),
    "drafts that are not filtered": Rules(filters_drafts=False),
    "siblings that are not filtered": Rules(siblings=2, filters_drafts=False),
}
WRONG = {
    "all accepted": Rules(accepts_all=True),
    "all certain ones accepted": Rules(accepts_all=True, certain=True),
    "the target's own distribution instead of the residual": Rules(residual=False),
    "the same with siblings": Rules(siblings=3, residual=False),
    "siblings stay in the drafter's distribution": Rules(siblings=3, removes_siblings=False),
    "certain drafts as if they were drawn": Rules(certain=True, certain_as_drawn=True),
}


def prove(bundle: ToyBundle, request: Request) -> list[dict]:
    return check(bundle.manifest, draw_all(bundle, [3, 1], request), reference())


@pytest.mark.parametrize("name", RIGHT)
def test_right_rules_pass(name):
    rows = prove(ToyBundle(RIGHT[name]), REQUEST)
    assert [row["token"] for row in rows] == ["first", "first two", "behind a whole path"] * 4
    assert min(row["p_value"] for row in rows) > 1e-3
    assert {row["outside"] for row in rows} == {0}
    assert all(0.1 < row["accepted"] < 0.95 and row["samples"] > 40 for row in rows)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_rules_are_caught(name):
    message = (
        r"^drafter model \((chain|static), (drawn|certain) drafts\), temperature [\d.]+(, top_[kp] [\d.]+)?: "
        r"3000 samples \(first two\) are not distributed as the target's: p-value [\d.e-]+, expected at least 1e-06 "
        r"\(chi-square [\d.]+, \d+ degrees of freedom\); the largest deviation is at "
        r"(all rare tokens together|tokens \d+, \d+): expected [\d.]+ times, drawn \d+ times$"
    )
    with pytest.raises(ProofError, match=message) as caught:
        prove(ToyBundle(WRONG[name]), Request(SETTINGS, 3000))
    assert caught.value.exit_code == 3
    assert caught.value.hint == "speculation changed what is drawn: please report it with the recipe"


def test_a_bonus_token_that_is_not_filtered_is_caught():
    message = (
        r"top_k 5: \d+ of \d+ samples \(behind a whole path\) are tokens that these settings exclude, the first is \d+$"
    )
    request = Request((SamplingParams(temperature=0.7, top_k=5),), 3000, 2 + DEPTH)
    with pytest.raises(ProofError, match=message):
        prove(ToyBundle(Rules(filters_bonus=False)), request)


def test_a_bonus_token_at_another_temperature_is_caught():
    message = (
        r"samples \(behind a whole path\) are not distributed as the target's: .* at (all rare|the \d+\. best) token"
    )
    request = Request((SamplingParams(temperature=0.5),), 3000, 2 + DEPTH)
    with pytest.raises(ProofError, match=message):
        prove(ToyBundle(Rules(filters_bonus=False)), request)


def test_approximate_rules_are_measured():
    rows = prove(ToyBundle(Rules(accepts_all=True), exact=False), Request(SETTINGS, 3000))
    assert {row["exact"] for row in rows} == {False}
    assert min(row["p_value"] for row in rows) < 1e-6


def test_rows_say_everything():
    (row, *_) = prove(ToyBundle(Rules(siblings=3)), Request((SamplingParams(1.0, top_p=0.8),), 500))
    assert row.items() >= {
        "drafter": "model", "tree": "static", "sample": True, "settings": {"temperature": 1.0, "top_p": 0.8},
        "token": "first", "samples": 3000, "outside": 0, "against": "the table", "exact": True,
    }.items()  # fmt: skip
    assert row.keys() >= {"statistic", "degrees", "p_value", "accepted"}


def test_equal_bundles_give_equal_rows():
    rows = [prove(ToyBundle(Rules()), Request(SETTINGS, 3000)) for _ in range(2)]
    assert rows[0] == rows[1]


def test_large_models_are_sampled_less():
    assert [sample_count(size) for size in (0, 1000, 16_000_000, 1_400_000_000, 10**12)] == [1000, 1000, 1000, 106, 30]


@pytest.mark.parametrize(("length", "kept", "new"), [(64, 8, 16), (20, 8, 10), (9, 7, 0), (2, 1, 0)])
def test_the_prompt_goes_on_as_the_bundle_does(length, kept, new):
    bundle = SimpleNamespace(
        manifest=SimpleNamespace(max_length=length),
        generate=lambda prompt, max_new_tokens: SimpleNamespace(token_ids=[9] * max_new_tokens),
    )
    assert make_prompt(bundle, range(20)) == [*range(kept), *[9] * new]


@pytest.mark.parametrize(("observed", "is_caught"), [(577, False), (578, True)])
def test_a_millionth_is_the_border(observed, is_caught):
    """Test 1000 throws of a coin: 77 too many have a p-value of 1.1e-6, one more has 8.1e-7."""
    tokens = [0] * observed + [1] * (1000 - observed)
    generations = [SimpleNamespace(token_ids=[token], path_lengths=[], finish_reason="length") for token in tokens]
    fair = Reference("a coin", lambda texts: [np.zeros(2, np.float32) for _ in texts])
    drawn = [Drawn([0], SamplingParams(1.0), generations)]
    with pytest.raises(ProofError, match=r"p-value 8\.1e-07") if is_caught else nullcontext():
        check(ToyBundle(Rules()).manifest, drawn, fair)


def test_no_seed_is_used_twice():
    seeds = []

    def generate_batch(prompts, *, seed, **options):
        seeds.extend(seed)
        return [None] * len(prompts)

    bundle = SimpleNamespace(manifest=SimpleNamespace(batch_size=4), generate_batch=generate_batch)
    draw_all(bundle, [1], Request(SETTINGS, 10))
    assert len(set(seeds)) == len(seeds) == len(SETTINGS) * 12


def test_one_batch_slot_reads_the_prompt_once():
    calls = []
    bundle = SimpleNamespace(
        manifest=SimpleNamespace(batch_size=1),
        generate_batch=lambda prompts, **options: calls.append("generate") or [None],
        reuse_last=lambda: calls.append("reuse"),
    )
    draw_all(bundle, [1], Request(SETTINGS[:1], 3))
    assert calls == ["generate", "reuse", "generate", "reuse", "generate"]


def test_tokens_that_end_a_generation_are_no_context():
    """Count end tokens among all others, as no second token follows them."""
    table = np.log(np.array([0.5, 0.3, 0.2], np.float32))
    generations = [SimpleNamespace(token_ids=[0]) for _ in range(50)]
    generations += [SimpleNamespace(token_ids=[1 + number // 30, number % 3]) for number in range(50)]
    found = first_two(
        Drawn([1], SamplingParams(1.0), generations), Reference("a table", lambda texts: [table for _ in texts]), (0,)
    )
    assert found.observed.tolist() == [10, 10, 10, 7, 7, 6, 50]
    np.testing.assert_allclose(found.expected, [15, 9, 6, 10, 6, 4, 50], rtol=1e-5)
    assert [found.name(cell) for cell in (0, 5, 6)] == ["tokens 1, 0", "tokens 2, 2", "all others"]
