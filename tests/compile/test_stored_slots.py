"""Codes of a GGUF file as they are, int8 caches and adapters in slots, all in one bundle."""

import peft
import pytest
import torch
from transformers import LlamaForCausalLM

from speccompile.bundle.caches import cache_dtype
from speccompile.bundle.reader import open_bundle
from speccompile.compiler.build import build
from speccompile.contract import COMPONENTS
from speccompile.recipe import load_recipe, make_plan
from speccompile.runtime import Bundle
from tests import adapters
from tests.gguf_files import save, save_reference, write_gguf

pytestmark = [
    pytest.mark.builds(2),
    pytest.mark.sweep("a bundle; stored codes, adapters and quantized caches alone are in the first tier"),
]

PROMPT = [5, 9, 20, 31, 7, 77, 13]
ALL = {"max_new_tokens": 20, "ignore_eos": True, "top_logprobs": 8}
RECIPE = """
name: three
target: {model: target.gguf}
drafter: {kind: model, model: draft.gguf, tokens: 3}
precision: {target: stored, drafter: stored}
adapters: {modules: [q_proj, down_proj], rank: 4, slots: 2}
cache: {max_length: 64, prefill_chunk: 16, batch_size: 2, dtype: int8}
drafter_cache: {dtype: int8}
prove: {max_new_tokens: 8}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a folder with a bundle, two adapters for it, and the base in float32 with the file's values."""
    folder = tmp_path_factory.mktemp("three")
    stored = write_gguf(save(folder / "model", "llama"), folder / "target.gguf", ("Q8_0", "Q4_0"))
    base = save_reference(folder / "model", stored, folder / "reference")
    write_gguf(save(folder / "small", "llama", num_hidden_layers=1), folder / "draft.gguf", ("Q8_0",))
    for seed, name in enumerate(("one", "two")):
        torch.manual_seed(seed)
        model = LlamaForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="eager").eval()
        settings = peft.LoraConfig(r=4, target_modules=["q_proj", "down_proj"])
        adapters.stirred(peft.get_peft_model(model, settings)).save_pretrained(folder / name)
    (folder / "recipe.yaml").write_text(RECIPE)
    build(make_plan(load_recipe(folder / "recipe.yaml")), folder / "bundle")
    return folder


@pytest.fixture
def bundle(made):
    with Bundle.open(made / "bundle", threads=2) as opened:
        for name in ("one", "two"):
            opened.load_adapter(name, made / name)
        yield opened


def _numbers(generation):
    return generation.token_ids, generation.logprobs, generation.top_logprobs


def test_all_three_are_in_the_bundle_and_it_is_proven(made):
    opened = open_bundle(made / "bundle")
    engine = opened.manifest.engines[0]
    assert engine.precision["target"] == "stored"
    assert {cache_dtype(engine.graphs, part) for part in COMPONENTS} == {"int8"}
    assert opened.manifest.plan["adapters"]["slots"] == 2
    (row,) = [row for row in opened.proof["graphs"] if row["graph"] == "verify" and "kept" in row]
    assert row["kept"] == row["weights"]
    assert opened.manifest.exact


@pytest.mark.parametrize("name", ["one", "two", None])
def test_drafts_and_neighbours_change_no_bit(bundle, name):
    speculative = bundle.generate(PROMPT, adapter=name, adaptive=False, **ALL)
    assert sum(speculative.draft_lengths) > 0
    assert _numbers(speculative) == _numbers(bundle.generate(PROMPT, adapter=name, autoregressive=True, **ALL))
    other = "two" if name != "two" else None
    both = bundle.generate_batch([PROMPT, PROMPT[:3]], adapter=[name, other], **ALL)
    assert _numbers(both[0]) == _numbers(speculative)


@pytest.mark.parametrize("name", ["one", "two"])
def test_an_adapter_changes_the_logits_as_peft_does(made, bundle, name):
    """Compare closely: caches of int8 and quantized activations are between."""
    base = LlamaForCausalLM.from_pretrained(made / "reference", dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        plain = base(torch.tensor([PROMPT])).logits[0, -1].log_softmax(-1)
        theirs = peft.PeftModel.from_pretrained(base, made / name).eval()
        wanted = theirs(torch.tensor([PROMPT])).logits[0, -1].log_softmax(-1)
    found = bundle.generate(PROMPT, adapter=name, **ALL).top_logprobs[0]
    ids = [token for token, _ in found]
    ours = torch.tensor([value for _, value in found])
    assert (ours - wanted[ids]).abs().max() < 0.1 * (ours - plain[ids]).abs().max()
