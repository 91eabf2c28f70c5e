"""Distributions and seeds, proven on bundles that were really built; and a biased rule, which the build refuses."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from speccompile.compiler.build import build, distribution_proof
from speccompile.compiler.models.load import load_model
from speccompile.compiler.prove import seeds, tokens, tolerance
from speccompile.compiler.prove.distribution import SETTINGS, Request, check, draw_all
from speccompile.compiler.prove.filters import unfiltered
from speccompile.compiler.prove.processors import eager_reference
from speccompile.compiler.step.verify.sampled import Speculative
from speccompile.errors import ProofError
from speccompile.recipe import load_recipe, make_plan
from speccompile.runtime import Bundle
from tests import zoo
from tests.compile.tiny_bundles import noisy, save

pytestmark = pytest.mark.builds(2)

RECIPE = """
name: tiny
target: {model: target}
drafter: {kind: model, model: drafter, tokens: 2}
decoding: sampling
cache: {max_length: 64, prefill_chunk: 16, batch_size: 32}
"""
ROW = {
    "drafter", "tree", "sample", "settings", "token", "samples", "statistic", "degrees", "p_value", "outside",
    "accepted", "against", "exact",
}  # fmt: skip


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    save(zoo.model("llama"), folder / "target", tokenizer=False)
    save(noisy("llama", 0.05), folder / "drafter", tokenizer=False)
    (folder / "recipe.yaml").write_text(RECIPE)
    return folder / "recipe.yaml"


@pytest.fixture(scope="module")
def certain(recipe, tmp_path_factory) -> Path:
    """Return a bundle whose drafts are the drafter's best tokens."""
    folder = tmp_path_factory.mktemp("certain") / "bundle"
    return build(make_plan(load_recipe(recipe, ["drafter.sample=false"])), folder, prove=False)


@pytest.fixture(scope="module")
def bundle(certain) -> Bundle:
    return Bundle.open(certain, threads=1)


def test_prove_draws_from_the_target_s_distribution(cli, certain, recipe):
    code, out, _ = cli("prove", certain, "--samples", 600, "--max-new-tokens", 12, "--json")
    proof = json.loads(out)
    assert code == 0
    assert {row["against"] for row in proof["distributions"]} == {"the engine's own logits"}
    assert [set(row) for row in proof["distributions"]] == [ROW] * 6
    assert [row["token"] for row in proof["distributions"]] == ["first", "first two"] * 3
    assert {(row["samples"], row["outside"], row["exact"]) for row in proof["distributions"]} == {(608, 0, True)}
    assert min(row["p_value"] for row in proof["distributions"]) > 1e-3
    assert min(row["accepted"] for row in proof["distributions"]) > 0.05
    assert (proof["seeds"]["equal"], proof["seeds"]["settings"]) == (proof["seeds"]["prompts"], {"temperature": 0.8})


def test_prove_draws_as_transformers_says(cli, certain, recipe):
    code, out, _ = cli("prove", certain, "--samples", 600, "--max-new-tokens", 6, "--target", recipe.parent / "target")
    assert code == 0
    assert re.search(r"^equal seeds     3 of 3 prompts$", out, re.M)
    assert re.search(r"^distribution    temperature 0.7, top_k 5: first two, 608 samples, p-value [\d.]+$", out, re.M)


def test_another_target_s_probabilities_are_not_the_bundle_s(bundle, recipe):
    drawn = draw_all(bundle, [5, 6, 7], Request(SETTINGS, 600))
    check(bundle.manifest, drawn, eager_reference(load_model(recipe.parent / "target", 64)))
    with pytest.raises(
        ProofError, match=r"^drafter model \(chain, certain drafts\), temperature 1: 608 samples \(first"
    ):
        check(bundle.manifest, drawn, eager_reference(load_model(recipe.parent / "drafter", 64)))


@pytest.mark.sweep("a build of its own; what the proof compares finds another target's probabilities above")
def test_biased_acceptance_ends_the_build(cli, recipe, tmp_path, monkeypatch):
    """Drawn drafts are accepted half as often again as they should be. Greedy rows are right all the same."""
    right = Speculative.forward

    def biased(self, target, drafts, is_draft, proposals):
        return right(self, target, drafts, is_draft, proposals._replace(uniforms=proposals.uniforms * 0.5))

    monkeypatch.setattr(Speculative, "forward", biased)
    monkeypatch.setattr(distribution_proof, "SMALL_SAMPLES", 900)
    code, out, err = cli("build", recipe, "--output", tmp_path / "bundle", "--no-cache")
    assert (code, out) == (3, "")
    assert re.search(
        r"^error: drafter model \(chain, drawn drafts\), temperature [\d.]+.*: \d+ samples \(first two\) are not "
        r"distributed as the target's: p-value [\d.e-]+, expected at least 1e-06 .* drawn \d+ times$", err, re.M
    )  # fmt: skip
    assert list(tmp_path.iterdir()) == []


def sampled_case(bundle: Bundle, index: int | None) -> tokens.Case:
    """Return a prompt continued with equal seeds; speculation then gives another token at `index`, or ends one
    early."""
    options = {"temperature": seeds.SAMPLING.temperature, "seed": seeds.SAMPLING.seed}
    (whole,) = tokens.decode_both(bundle, [[5, 6, 7]], 8, **options)
    ids = list(whole.speculative.token_ids)
    if index is None:
        ids.pop()
    else:
        ids[index] = (ids[index] + 1) % zoo.VOCABULARY
    return replace(whole, speculative=replace(whole.speculative, token_ids=ids))


def test_another_token_with_equal_seeds_is_told(bundle):
    case = sampled_case(bundle, 3)
    ours, theirs = case.speculative.token_ids[3], case.autoregressive.token_ids[3]
    message = (
        rf"^prompt 1 \(token ids 5, 6, 7\): with equal seeds, at new token 3 speculative sampling gives {ours}, "
        rf"autoregressive {theirs}; the random number ([\d.]+) is ([\d.e-]+) away from where both could be drawn$"
    )
    with pytest.raises(ProofError, match=message) as caught:
        seeds.check_equal(bundle, case)
    uniform, distance = map(float, re.search(message, str(caught.value)).groups())
    logits = tokens.next_logits(bundle, [5, 6, 7, *case.autoregressive.token_ids[:3]])
    ends = unfiltered(logits, [5], seeds.SAMPLING).cumsum()
    assert int(np.searchsorted(ends, uniform)) == theirs
    borders = [ends[ours - 1] if ours else 0.0, ends[ours]]
    assert distance == pytest.approx(np.abs(np.array(borders) - uniform).min(), rel=0.01)


def test_a_generation_that_ends_early_is_told(bundle):
    with pytest.raises(ProofError, match="with equal seeds speculative sampling gives 7 new tokens, autoregressive 8"):
        seeds.check_equal(bundle, sampled_case(bundle, None))


def test_near_ties_are_reported_and_bounded(bundle, monkeypatch):
    monkeypatch.setitem(tolerance.TOLERANCE, "float32", 10.0)
    case = sampled_case(bundle, 3)
    tie = seeds.check_equal(bundle, case)
    assert (tie["prompt"], tie["index"]) == (1, 3)
    assert tie["tokens"] == [case.speculative.token_ids[3], case.autoregressive.token_ids[3]]
    monkeypatch.setattr(tokens, "decode_both", lambda *_, **__: [case])
    found = seeds.check(bundle, [[5, 6, 7]], 8)
    assert (found["equal"], found["near_ties"]) == (0, [tie])
    monkeypatch.setattr(tokens, "decode_both", lambda *_, **__: [case, case])
    message = (
        "with equal seeds 2 of 2 prompts part at near-ties between speculative and autoregressive sampling, expected"
    )
    with pytest.raises(ProofError, match=message):
        seeds.check(bundle, [[5, 6, 7]] * 2, 8)
