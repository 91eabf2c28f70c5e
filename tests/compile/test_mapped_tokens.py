"""Drafters with another tokenizer: what is drafted, proven, generated and drawn."""

import json
import subprocess

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from speccompile.compiler.build import build
from speccompile.compiler.prove.chi_square import chi_square
from speccompile.drafters.token_map import make_token_map
from speccompile.recipe import load_recipe, make_plan
from speccompile.runtime import Bundle, TextProposer
from tests.native.side_by_side import SideBySide
from tests.tokenizer_pairs import SIZE, byte_level, pair_in, save_pair

pytestmark = pytest.mark.builds(10)

DRAFTERS = {
    "chain": "drafter: {kind: model, model: drafter, tokenizer: map, tokens: 3}\ndecoding: greedy",
    "tree": "drafter: {kind: model, model: drafter, tokenizer: map, tree: [2, 1]}\ndecoding: greedy\ngraphs: fused",
    "dynamic": "drafter: {kind: model, model: drafter, tokenizer: map, tree: {depth: 3, top_k: 2, nodes: 6}}",
    "masks": "drafter: {kind: pard, model: drafter, tokenizer: map, tokens: 3}\ndecoding: greedy",
    "lookups": "drafter: {kind: model, model: drafter, tokenizer: map, tokens: 4, "
    "drafter: {kind: prompt_lookup, tokens: 2, passes: 2, lenience: 0.5}}\ndecoding: greedy",
    "several": "drafter: {kind: models, models: [drafter, drafter], tokenizer: map, tokens: 2}\ndecoding: greedy",
    "texts": "drafter: {kind: model, model: drafter, tokenizer: text, tokens: 4}",
    "drawn": "drafter: {kind: model, model: drafter, tokenizer: map, tokens: 2}\ndecoding: sampling",
    "drawn tree": "drafter: {kind: model, model: drafter, tokenizer: map, tree: [2, 1]}\ndecoding: sampling",
}
BATCH = 3
TEXTS = ("the quick brown reader", "def main(self):\n    return", "fox", "jumps over the other book ,, the other book")


def encoded(text: str) -> list[int]:
    return byte_level().encode(text).ids


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    save_pair(folder)
    return folder


@pytest.fixture(scope="module")
def bundles(pair):
    """Build a bundle once, with all of its proof."""
    made = {}

    def bundle(name):
        if name not in made:
            recipe = pair / f"{name}.yaml"
            recipe.write_text(
                f"name: mapped\ntarget: {{model: target}}\n{DRAFTERS[name]}\n"
                f"cache: {{max_length: 64, prefill_chunk: 16, batch_size: {BATCH}}}\nprove: {{max_new_tokens: 16}}\n"
            )
            made[name] = build(make_plan(load_recipe(recipe)), pair / "bundles" / name)
        return made[name]

    return bundle


@pytest.mark.sweep("a build each", but=["chain", "texts"])
@pytest.mark.parametrize("name", DRAFTERS)
def test_generates_what_transformers_generates(pair, bundles, name):
    bundle = Bundle.open(bundles(name), threads=1)
    target = AutoModelForCausalLM.from_pretrained(pair / "target", attn_implementation="eager").eval()
    tables, accepted = make_token_map(pair_in(pair)), 0.0
    assert tables.to_drafter.shape[1] > 1  # several of the drafter's for one of the target
    prompts = [encoded(text) for text in TEXTS] + [np.arange(256, 306).tolist()]
    assert any(tables.counts[token] > 1 for prompt in prompts for token in prompt)
    for prompt in prompts:
        found = bundle.generate(prompt, max_new_tokens=14, adaptive=False, temperature=0)
        ids = torch.tensor([prompt])
        expected = target.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=14, eos_token_id=0
        )
        assert found.token_ids == expected[0, len(prompt) :].tolist()
        accepted += found.mean_accepted / len(prompts)
    assert accepted > (1.0 if name == "masks" else 1.2)  # nobody taught the model to read masks


@pytest.mark.sweep("a build each", but=["chain", "texts"])
@pytest.mark.parametrize("name", DRAFTERS)
def test_both_runtimes_agree(bundles, native_library, onnxruntime_library, name):
    both, random = SideBySide(bundles(name), native_library, onnxruntime_library), np.random.default_rng(3)
    batch = [random.integers(1, SIZE - 20, length).tolist() for length in (3, 20, 45)]
    settings = [{}, {"temperature": 0.9, "seed": 5}] if "drawn" in name else [{}]
    for way in ({"adaptive": False}, {}, {"autoregressive": True}):
        for each in settings:
            both.check(batch, max_new_tokens=16, **way, **each)


@pytest.mark.sweep("a build each, and thousands of draws")
@pytest.mark.parametrize("name", ["drawn", "drawn tree"])
def test_drawn_tokens_have_the_distribution_of_the_target(pair, bundles, name):
    """Test the second and third new tokens, of which drafts are accepted and refused, by chi-square."""
    bundle = Bundle.open(bundles(name), threads=1)
    target = AutoModelForCausalLM.from_pretrained(pair / "target", attn_implementation="eager").eval()
    prompt, draws = encoded(TEXTS[0]), 1500
    counts: dict[tuple[int, ...], np.ndarray] = {}
    accepted = 0.0
    for first in range(0, draws, BATCH):
        seeds = [*range(first, first + BATCH)]
        found = bundle.generate_batch(
            [prompt] * BATCH, max_new_tokens=4, temperature=0.6, top_k=4, seed=seeds, adaptive=False
        )
        for each in found:
            accepted += each.mean_accepted / draws
            for place in range(1, len(each.token_ids)):
                before = tuple(each.token_ids[:place])
                counts.setdefault(before, np.zeros(SIZE))[each.token_ids[place]] += 1
    assert accepted > 1.15
    often = sorted(counts, key=lambda before: -counts[before].sum())[:6]
    for before in often:
        with torch.no_grad():
            logits = target(torch.tensor([[*prompt, *before]])).logits[0, -1].double() / 0.6
        kept = torch.full_like(logits, -torch.inf)
        best = logits.topk(4).indices
        kept[best] = logits[best]
        expected = torch.softmax(kept, 0).numpy()
        observed = counts[before]
        assert observed[expected == 0].sum() == 0
        assert chi_square(observed, expected * observed.sum()).p_value > 1e-4


@pytest.mark.sweep("a build", but=["chain"])
@pytest.mark.parametrize("name", ["chain", "several"])
def test_a_session_goes_on(bundles, name, tmp_path):
    """Save a session of a drafter whose caches have several rows for a token, and go on from it."""
    file, bundle = tmp_path / "one.session", Bundle.open(bundles(name), threads=1)
    first = bundle.generate(TEXTS[0], max_new_tokens=6, session=file)
    text = [*encoded(TEXTS[0]), *first.token_ids, 300, 299]
    expected = bundle.generate(text, max_new_tokens=10, adaptive=False)
    other = Bundle.open(bundles(name), threads=1)
    found = other.generate(text, max_new_tokens=10, adaptive=False, session=file)
    assert found.token_ids == expected.token_ids
    assert found.mean_accepted == expected.mean_accepted


@pytest.fixture(scope="module")
def over_texts(pair):
    """Build a bundle of each model: one that waits for a proposer, and one that writes."""
    folder = pair / "texts"
    folder.mkdir()
    for name, rest in (
        ("open", "target: {model: ../target}\ndrafter: {kind: retrieval, tokens: 4}\ndecoding: sampling"),
        ("writer", "target: {model: ../drafter}\ndrafter: {kind: none}\ndecoding: greedy"),
    ):
        recipe = folder / f"{name}.yaml"
        recipe.write_text(f"name: {name}\n{rest}\ncache: {{max_length: 96, prefill_chunk: 16}}\n")
        build(make_plan(load_recipe(recipe)), folder / name, prove=False)
    return folder


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_drafts_over_texts_change_no_token(over_texts, temperature):
    """Draft by a bundle of the other model, with its own tokenizer."""
    writer = Bundle.open(over_texts / "writer", threads=1)
    bundle = Bundle.open(over_texts / "open", threads=1, proposer=TextProposer(writer, over_texts / "open"))
    drafts = 0
    for text in TEXTS:
        settings = {"max_new_tokens": 20, "temperature": temperature, "seed": 3}
        found = bundle.generate(text, adaptive=False, **settings)
        if temperature == 0:
            assert found.token_ids == bundle.generate(text, autoregressive=True, **settings).token_ids
        drafts += sum(found.draft_lengths)
    assert drafts > 10


def test_drafts_over_texts_in_cpp(over_texts, native_build, onnxruntime_library):
    target, writer = over_texts / "open", over_texts / "writer"
    command = [native_build / "test_text_proposers", target, writer, onnxruntime_library, "20"]
    done = subprocess.run([*command, *TEXTS], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    proposer = TextProposer(Bundle.open(writer, threads=1), target)
    alone = Bundle.open(target, threads=1, proposer=proposer)
    results = [json.loads(line) for line in done.stdout.splitlines()]
    for text, found in zip(TEXTS, results, strict=True):
        assert found["token_ids"] == alone.generate(text, max_new_tokens=20, autoregressive=True).token_ids
    first = alone.generate(TEXTS[0], max_new_tokens=20, adaptive=False)
    assert results[0]["draft_lengths"] == first.draft_lengths
    assert results[0]["mean_accepted"] == first.mean_accepted > 1.5
