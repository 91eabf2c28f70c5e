"""A bundle of two multimodal checkpoints: the text decoder of one drafts for that of the other."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForImageTextToText

from speccompile.compiler.build import build
from speccompile.recipe import load_recipe, make_plan
from speccompile.runtime import Bundle
from tests import multimodal, zoo

pytestmark = pytest.mark.builds(2)

RECIPE = """
name: multimodal
target: {model: target}
drafter: {kind: model, model: drafter, tokens: 3}
cache: {max_length: 96, prefill_chunk: 16}
prove: {max_new_tokens: 16}
"""
PROMPTS = ("in the self = the", "\x00 an other", [5, 9, 200, 17] * 6, [11])


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Write Gemma 3 as Google published it, with a padded vocabulary, and Mistral 3 as transformers writes it."""
    folder = tmp_path_factory.mktemp("multimodal")
    target = multimodal.model("gemma3", vocab_size=zoo.VOCABULARY + 12, eos_token_id=None)
    multimodal.save(target, folder / "target", "published", tokenizer=True)
    multimodal.save(multimodal.model("mistral3"), folder / "drafter", tokenizer=True)
    (folder / "recipe.yaml").write_text(RECIPE)
    return folder


def test_it_generates_what_the_whole_model_generates(folder, tmp_path):
    plan = make_plan(load_recipe(folder))
    notes = [note.partition(" is multimodal")[0] for note in plan.notes if " is multimodal" in note]
    assert notes == ["'target'", "'drafter'"]
    bundle = Bundle.open(build(plan, tmp_path / "bundle"), threads=1)
    whole = AutoModelForImageTextToText.from_pretrained(folder / "target", attn_implementation="eager").eval()
    for prompt in PROMPTS:
        found = bundle.generate(prompt, max_new_tokens=30, adaptive=False)
        ids = torch.tensor([zoo.byte_tokenizer()(prompt)["input_ids"] if isinstance(prompt, str) else prompt])
        expected = whole.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=30, eos_token_id=None
        )
        assert found.token_ids == expected[0, ids.shape[1] :].tolist()


@pytest.mark.sweep("a bundle with its proof")
def test_a_decoder_that_carries_states_generates_what_the_whole_model_generates(tmp_path):
    whole = multimodal.model("qwen3_5", eos_token_id=None)
    multimodal.save(whole, tmp_path / "target", tokenizer=True)
    (tmp_path / "recipe.yaml").write_text(
        "name: states\ntarget: {model: target}\ndrafter: {kind: prompt_lookup, ngram: 1, tokens: 3}\n"
        "cache: {max_length: 96, prefill_chunk: 16}\nprove: {max_new_tokens: 16}\n"
    )
    bundle = Bundle.open(build(make_plan(load_recipe(tmp_path)), tmp_path / "bundle"), threads=1)
    prompt = [5, 9, 200, 17] * 6
    ids = torch.tensor([prompt])
    expected = whole.generate(
        input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=30, eos_token_id=None
    )
    found = bundle.generate(prompt, max_new_tokens=30, adaptive=False)
    assert found.token_ids == expected[0, len(prompt) :].tolist()
    assert found.rounds >= 1
