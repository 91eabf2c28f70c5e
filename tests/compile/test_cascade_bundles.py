"""Cascades in whole bundles, proof included: every kind that drafts a chain, a tail behind it and a gate before it."""

import json
from pathlib import Path

import pytest

from speccompile.compiler.build import build, distribution_proof
from speccompile.compiler.build.distribution_proof import SmallProofInputs, prove_small
from speccompile.compiler.build.inputs import open_round
from speccompile.compiler.step.draft import cascade
from speccompile.compiler.step.draft.cascade import certain_rows
from speccompile.errors import ProofError
from speccompile.recipe import Plan, load_recipe, make_plan
from speccompile.runtime import Bundle
from tests import zoo
from tests.compile.tiny_bundles import noisy, save
from tests.heads.every import HEADS
from tests.light.forced_lengths import force

pytestmark = pytest.mark.builds(4)

BESIDE = "then: {kind: prompt_lookup, tokens: 2}, gate: {kind: prompt_lookup, match: 2, tokens: 6}"
MASKED = ("pass", "bita")
"""Which read rows behind the text that a tail would stand in."""
KINDS = {
    "model": "kind: model, model: drafter",
    "first layers": "kind: layer_skip, layers: [0]",
    "other layers": "kind: layer_skip, layers: [1]",
    "kangaroo": "kind: kangaroo, model: kangaroo, threshold: 0.01",
    **{kind: f"kind: {kind}, model: {kind}" for kind in HEADS if kind not in ("kangaroo", *MASKED)},
}
PROMPTS = ([*range(3, 40)], [5, 9, 200, 17] * 6, [11])
"""Longer than several chunks, one that repeats, and one token."""
NEW_TOKENS = 24


def make(folder: Path, drafter: str, *sections: str, prove: bool = True) -> Bundle:
    """Return a target that soon goes round, something that drafts for it, and the bundle of both."""
    model = zoo.model("llama")
    save(model, folder / "target", tokenizer=False)
    for kind, write in HEADS.items():
        if f"model: {kind}" in drafter:
            write(folder / kind, model.config)
    if "model: drafter" in drafter:
        save(noisy("llama", 0.05), folder / "drafter", tokenizer=False)
    cache = "cache: {max_length: 96, prefill_chunk: 16, batch_size: 2}"
    lines = ("name: tiny", "target: {model: target}", f"drafter: {{{drafter}}}", cache, *sections)
    (folder / "recipe.yaml").write_text("\n".join(lines))
    build(make_plan(load_recipe(folder)), folder / "bundle", prove=prove)
    return Bundle.open(folder / "bundle", threads=1)


def check_tokens(bundle: Bundle) -> set[int]:
    """Compare speculative with autoregressive decoding, one prompt at a time and two at once. Return the numbers of
    drafts of rounds."""
    lengths: set[int] = set()
    alone = [bundle.generate(p, max_new_tokens=NEW_TOKENS, autoregressive=True).token_ids for p in PROMPTS]
    for prompt, expected in zip(PROMPTS, alone, strict=True):
        found = bundle.generate(prompt, max_new_tokens=NEW_TOKENS, adaptive=False)
        assert found.token_ids == expected
        lengths |= set(found.draft_lengths)
    both = bundle.generate_batch(list(PROMPTS[:2]), max_new_tokens=NEW_TOKENS, adaptive=False)
    assert [each.token_ids for each in both] == alone[:2]
    return lengths


@pytest.mark.sweep("a cascade wraps every kind alike: one shows it", but=["first layers"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_tail_and_a_gate(kind, tmp_path):
    bundle = make(tmp_path, f"{KINDS[kind]}, tokens: 2, {BESIDE}")
    assert (bundle.manifest.tokens, bundle.manifest.depth, bundle.manifest.tree) == (6, 6, "chain")
    assert 6 in check_tokens(bundle), "a match of two tokens goes through the gate"


MODEL = KINDS["model"]
INNER = "drafter: {kind: prompt_lookup, tokens: 3, passes: 2"


@pytest.mark.sweep("a bundle each, with its proof; one without is below, in the first tier")
@pytest.mark.parametrize(
    ("drafter", "sections"),
    [
        (f"{MODEL}, tokens: 6, {INNER}}}", ()),
        (f"{MODEL}, tokens: 6, {INNER}, lenience: 0.3}}", ("graphs: fused",)),
        (f"{MODEL}, tokens: 4, {INNER}}}, {BESIDE}", ()),
    ],
)
def test_a_model_is_drafted_for(drafter, sections, tmp_path):
    bundle = make(tmp_path, drafter, *sections)
    lengths = check_tokens(bundle)
    assert len(lengths - {0}) > 1, "how many drafts it takes differs from round to round"


@pytest.mark.sweep("a bundle with its proof")
def test_a_gate_fills_a_tree(tmp_path):
    bundle = make(tmp_path, f"{MODEL}, tree: [2, 1], gate: {{kind: prompt_lookup, match: 2}}")
    assert (bundle.manifest.tokens, bundle.manifest.tree) == (4, "static")
    check_tokens(bundle)


@pytest.mark.sweep("a bundle each", but=["first layers"])
@pytest.mark.parametrize(
    "drafter",
    [f"{KINDS['first layers']}, tokens: 2, {BESIDE}", f"{MODEL}, tokens: 4, {INNER}}}"],
    ids=["first layers", "a model that is drafted for"],
)
def test_rounds_without_drafts_in_between_change_nothing(drafter, tmp_path):
    bundle = make(tmp_path, drafter, prove=False)
    force(bundle, [1, 1, 1, 7, 3, 1, 7, 7, 1])
    for prompt in PROMPTS:
        expected = bundle.generate(prompt, max_new_tokens=NEW_TOKENS, autoregressive=True).token_ids
        assert bundle.generate(prompt, max_new_tokens=NEW_TOKENS).token_ids == expected


SAMPLES = 2000
DRAWN = f"{MODEL}, tokens: 2, sample: true, {BESIDE}"


@pytest.mark.sweep("draws and a proof of distributions")
def test_what_is_drawn_has_the_distribution_of_the_target(tmp_path, monkeypatch):
    """Run the build's chi-square tests on a drawn chain with a certain tail, and a gate before both."""
    monkeypatch.setattr(distribution_proof, "SMALL_SAMPLES", SAMPLES)
    bundle = make(tmp_path, DRAWN, "decoding: sampling")
    assert bundle.manifest.sample
    rows = json.loads((tmp_path / "bundle" / "proof.json").read_text())["distributions"]
    assert {row["model"] for row in rows} == {"small", "tiny"}
    assert min(row["p_value"] for row in rows) > 1e-6


def planned(folder: Path, *sections: str) -> Plan:
    make(folder, DRAWN, *sections, prove=False)
    return make_plan(load_recipe(folder))


@pytest.mark.sweep("two bundles that sample, with their proof")
def test_a_tail_that_is_said_to_be_drawn_is_told(tmp_path, monkeypatch):
    """Looked-up drafts that are judged as if they had been drawn with one chance in two: too many are accepted."""

    def halved(tokens, candidates, vocabulary):
        ids, probs = certain_rows(tokens, candidates, vocabulary)
        return ids, probs / 2 + probs.roll(1, 2) / 2

    plan = planned(tmp_path, "decoding: sampling")
    monkeypatch.setattr(cascade, "certain_rows", halved)
    monkeypatch.setattr(distribution_proof, "SMALL_SAMPLES", SAMPLES)
    with pytest.raises(ProofError, match="are not distributed as the target's: p-value"):
        prove_small(SmallProofInputs(open_round(plan), SAMPLES))
    with pytest.raises(ProofError, match=r"^draft, .*, node \d: candidates \[.*expected \d+ alone, which is certain"):
        build(plan, tmp_path / "other", use_build_cache=False)
