"""PaSS and BiTA in whole bundles, against transformers' own forward over mask rows, and without changing a token."""

import json

import pytest

from speccompile.compiler.build import build, distribution_proof
from speccompile.errors import UnsupportedModelError
from speccompile.recipe import load_recipe, make_plan
from speccompile.runtime import Bundle
from tests import zoo
from tests.compile.head_loop import check_loop
from tests.compile.tiny_bundles import save
from tests.heads.every import bita, masks

pytestmark = pytest.mark.builds(7)

CACHE = "cache: {max_length: 64, prefill_chunk: 16, batch_size: 1}"
PROMPT = [17, 230, 45, 99] * 4


def recipe(folder, architecture, drafter, *sections, write=masks, **more):
    """Return its file, beside a target and rows that were trained for it."""
    model = zoo.model(architecture)
    save(model, folder / "target", tokenizer=False)
    write(folder / "masks", model.config, **more)
    lines = ("name: tiny", "target: {model: target}", f"drafter: {{model: masks, {drafter}}}", *sections)
    (folder / "recipe.yaml").write_text("\n".join(lines))
    return load_recipe(folder / "recipe.yaml")


CASES = {
    "pass, a sliding window": ("mistral", "kind: pass", masks, {}),
    "pass of one": ("gpt2", "kind: pass, tokens: 2", masks, {"count": 1}),
    "bita": ("llama", "kind: auto", bita, {}),
    "bita by a projection": ("qwen3", "kind: bita, tokens: 3", bita, {"projection": 5}),
}


@pytest.mark.sweep("a bundle each", but=["window"])
@pytest.mark.parametrize("case", CASES)
def test_every_draft_is_what_transformers_says_behind_a_mask_row(tmp_path, case):
    architecture, drafter, write, more = CASES[case]
    plan = make_plan(recipe(tmp_path, architecture, drafter, CACHE, write=write, **more))
    assert check_loop(plan, tmp_path, prompt_length=25, new_tokens=16) >= 16


@pytest.mark.sweep("a bundle each, with its proof; every draft is compared in the first tier")
@pytest.mark.parametrize(("kind", "write"), [("pass", masks), ("bita", bita)])
def test_the_proof_holds_and_the_first_draft_always_comes_true(tmp_path, kind, write):
    """Accept every first draft: the target drafts it, reading the bonus token as it verifies it."""
    plan = make_plan(recipe(tmp_path, "llama", f"kind: {kind}", CACHE, write=write))
    assert (plan.graphs, plan.drafter.tokens, plan.drafter.sample) == ("fused", 4, False)
    bundle = Bundle.open(build(plan, tmp_path / "bundle"), threads=1)
    speculative = bundle.generate(PROMPT, max_new_tokens=20, adaptive=False)
    assert speculative.token_ids == bundle.generate(PROMPT, max_new_tokens=20, autoregressive=True).token_ids
    assert min(speculative.path_lengths[:-1]) >= 2


@pytest.mark.sweep("draws and a proof of distributions")
@pytest.mark.parametrize(("kind", "write"), [("pass", masks), ("bita", bita)])
def test_sampling_leaves_the_target_s_distribution(tmp_path, monkeypatch, kind, write):
    monkeypatch.setattr(distribution_proof, "SMALL_SAMPLES", 300)
    monkeypatch.setattr(distribution_proof, "sample_count", lambda size: 100)
    sections = (CACHE, "decoding: sampling", "graphs: separate", "prove: {max_new_tokens: 8}")
    plan = make_plan(recipe(tmp_path, "llama", f"kind: {kind}, tokens: 3", *sections, write=write))
    bundle = Bundle.open(build(plan, tmp_path / "bundle"), threads=1)
    assert not bundle.manifest.sample
    proof = json.loads((tmp_path / "bundle" / "proof.json").read_text())
    assert proof["distributions"]
    drawn = {"max_new_tokens": 20, "temperature": 0.8, "seed": 3}
    ours, alone = (bundle.generate(PROMPT, **drawn, autoregressive=each) for each in (False, True))
    assert ours.token_ids == alone.token_ids


def test_a_prefix_beside_a_window_of_attention_is_refused(tmp_path):
    plan = make_plan(recipe(tmp_path, "mistral", "kind: bita", CACHE, write=bita))
    with pytest.raises(UnsupportedModelError, match="whose attention has a window, expected one without") as caught:
        build(plan, tmp_path / "bundle", prove=False)
    assert caught.value.hint
    assert not (tmp_path / "bundle").exists()
