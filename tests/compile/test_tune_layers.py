"""The search for layers on real models: what agreement means to transformers, and an answer that was planted."""

import json
from pathlib import Path

import pytest
import torch
from transformers import DynamicCache

from speccompile.compiler.build.inputs import open_round
from speccompile.compiler.build.layer_agreement import LayerAgreement, TargetText
from speccompile.plan.layers import LayersPlan
from speccompile.recipe import load_recipe, make_plan
from tests import zoo
from tests.compile.test_halves import ATTENTION, MLP, save_target, without
from tests.compile.tiny_bundles import save

pytestmark = pytest.mark.builds(2)

DEPTH, NEW_TOKENS = 3, 24


def write_recipe(folder: Path, layers: str, *more: str) -> Path:
    lines = ("name: tiny", "target: {model: target}", f"drafter: {{kind: layer_skip, layers: {layers}, tokens: 3}}",
             "cache: {max_length: 96, prefill_chunk: 16}", *more)  # fmt: skip
    (folder / "recipe.yaml").write_text("\n".join(lines))
    return folder


@torch.no_grad()
def test_agreement_is_what_transformers_says_behind_its_own_keys_and_values(tmp_path: Path) -> None:
    """Round by round, with a model whose windows are shorter than the text, and halves taken out by hand."""
    model = save_target(tmp_path)
    plan = make_plan(load_recipe(write_recipe(tmp_path, "[0, 3]")))
    random, texts = torch.Generator().manual_seed(3), []
    for length in (20, 5):
        prompt = torch.randint(3, zoo.VOCABULARY, (1, length), generator=random)
        written = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=NEW_TOKENS
        )
        texts.append(TargetText(length, written[0].tolist()))
    whole = open_round(plan)
    found = LayerAgreement(whole.target, whole.shape, texts, DEPTH, seconds=60, threads=1)
    assert found.has_halves
    assert (found.layers, found.depth, found.blocks) == (4, DEPTH, 2 * (NEW_TOKENS - DEPTH))
    assert found(LayersPlan((0, 1, 2, 3), (0, 1, 2, 3))) == (1, 1, 1)

    right = torch.zeros(DEPTH)
    for text in texts:
        for start in range(text.prompt, len(text.tokens) - DEPTH):
            caches = DynamicCache()
            model(input_ids=torch.tensor([text.tokens[:start]]), cache=caches)
            with without(model, ATTENTION, 2), without(model, MLP, 1), without(model, MLP, 2):
                drafts = model(input_ids=torch.tensor([text.tokens[start : start + DEPTH]]), cache=caches)
            said = drafts.logits[0].argmax(-1) == torch.tensor(text.tokens[start + 1 : start + 1 + DEPTH])
            right += said.cumprod(0)
    got = found(LayersPlan((0, 1, 3), (0, 3)))
    assert got == pytest.approx((right / found.blocks).tolist())
    assert 0 < got[-1] < got[0] < 1


def test_texts_that_are_short_limit_the_depth_and_time_the_blocks(tmp_path: Path) -> None:
    save_target(tmp_path)
    whole = open_round(make_plan(load_recipe(write_recipe(tmp_path, "[0, 3]"))))
    texts = [TargetText(2, list(range(5, 9))), TargetText(1, [7, 8])]
    short = LayerAgreement(whole.target, whole.shape, texts, DEPTH, seconds=60, threads=1)
    assert (short.depth, short.blocks) == (1, 1 + 0)
    text = [TargetText(2, list(range(5, 90)))]
    long = LayerAgreement(whole.target, whole.shape, text, DEPTH, seconds=1e-9, threads=1)
    assert 32 <= long.blocks <= 64 < 85 - DEPTH


def plant(folder: Path) -> None:
    """Write a model in which one MLP and one attention add nothing, and another layer nearly nothing."""
    model = zoo.model("llama", num_hidden_layers=4)
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight.zero_()
        model.model.layers[2].self_attn.o_proj.weight.zero_()
    save(model, folder / "target", tokenizer=False)


@pytest.mark.sweep("three bundles, and a search")
def test_tune_leaves_out_what_was_planted(cli, tmp_path: Path) -> None:
    plant(tmp_path)
    (tmp_path / "prompts.jsonl").write_text('{"token_ids": [7, 8, 9, 10]}\n{"token_ids": [30, 20, 10]}\n')
    recipe = write_recipe(tmp_path, "[0, 1, 2, 3]", "prove: {prompts: prompts.jsonl, max_new_tokens: 16}")
    options = ["--drafts", "1,3", "--threads", 1, "--repeats", 2, "--json", "--write", tmp_path / "tuned.yaml"]
    code, out, err = cli("tune", recipe, *options)
    assert code == 0, err
    found = json.loads(out)
    layers = found["layers"]
    chosen = layers["choice"]["layers"]
    assert 1 not in (chosen if isinstance(chosen, list) else chosen["mlp"])
    assert 2 not in (chosen if isinstance(chosen, list) else chosen["attention"])
    assert layers["own"]["layers"] == [0, 1, 2, 3]
    assert layers["own"]["accepted_at_depth"] == [1, 1, 1]
    assert layers["choice"]["tokens_per_second"] >= layers["own"]["tokens_per_second"]
    assert layers["complete"]
    written = make_plan(load_recipe(tmp_path / "tuned.yaml")).drafter
    if found["choice"]["drafts"]:
        assert found["set"][0] == f"drafter.layers={json.dumps(chosen)}"
        assert written.layers.to_json() == chosen
    else:  # a model of this size does not always pay
        assert (found["set"], written.kind) == (["drafter={kind: none}"], "none")


def test_the_recipes_layers_are_kept_where_no_time_is_given(cli, tmp_path: Path) -> None:
    plant(tmp_path)
    (tmp_path / "prompts.jsonl").write_text('{"token_ids": [7, 8, 9, 10]}\n')
    recipe = write_recipe(tmp_path, "[0, 3]", "prove: {prompts: prompts.jsonl, max_new_tokens: 8}")
    options = ["--drafts", "1", "--threads", 1, "--repeats", 1, "--json", "--search-seconds", 0]
    code, out, err = cli("tune", recipe, *options)
    assert code == 0, err
    found = json.loads(out)
    assert found["layers"] is None
    assert all("layers" not in setting for setting in found["set"])
