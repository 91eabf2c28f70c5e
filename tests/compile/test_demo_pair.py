"""Trees and several drafters on the trained pair of recipes/demo: there most drafts come true."""

from pathlib import Path

import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM

from speccompile.bundle.prompts import read_prompts
from speccompile.compiler.build import build
from speccompile.recipe import load_recipe, make_plan
from speccompile.runtime import Bundle
from speccompile.runtime.text.tokenizer import Tokenizer

DEMO = Path(__file__).resolve().parents[2] / "recipes/demo"
PROMPTS, NEW_TOKENS = 4, 32
WAYS = {
    "eagle-25": {"kind": "model", "model": str(DEMO / "drafter"), "tree": "eagle-25"},
    "medusa-63": {"kind": "model", "model": str(DEMO / "drafter"), "tree": "medusa-63"},
    "dynamic": {"kind": "model", "model": str(DEMO / "drafter"), "tree": {"depth": 4, "top_k": 4, "nodes": 16}},
    "models": {"kind": "models", "models": [str(DEMO / "drafter"), "noisy"], "tokens": 3},
}
"""Drafters of the demo pair that draft trees, and two models merged."""
MEAN_ACCEPTED = {"eagle-25": 2.3, "medusa-63": 2.3, "dynamic": 2.3, "models": 2.0}
"""New tokens per round, all prompts together, that each way gives at least."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Return a folder of the recipes, with a copy of the drafter that knows less."""
    folder = tmp_path_factory.mktemp("demo")
    drafter = AutoModelForCausalLM.from_pretrained(DEMO / "drafter")
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in drafter.parameters():
            parameter += 0.1 * parameter.std() * torch.randn(parameter.shape, generator=random)
    drafter.save_pretrained(folder / "noisy")
    return folder


@pytest.fixture(scope="module")
def expected() -> list[list[int]]:
    """Return transformers' greedy continuations of the prompts."""
    target = AutoModelForCausalLM.from_pretrained(DEMO / "target", attn_implementation="eager").eval()
    continuations = []
    for prompt in token_ids():
        ids = torch.tensor([prompt])
        found = target.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=NEW_TOKENS)
        continuations.append(found[0, len(prompt) :].tolist())
    return continuations


def token_ids() -> list[list[int]]:
    text = Tokenizer(DEMO / "target/tokenizer.json")
    return [text.encode(str(prompt)) for prompt in read_prompts(DEMO / "prompts.jsonl")[:PROMPTS]]


@pytest.mark.sweep(
    "the demo is built each time; the pages need its own bundle, whose build proves the same, in the first tier"
)
@pytest.mark.parametrize("way", WAYS)
def test_the_demo_gives_the_target_s_tokens(folder, expected, way):
    recipe = {
        "name": "demo",
        "target": {"model": str(DEMO / "target")},
        "drafter": WAYS[way],
        "cache": {"max_length": 256, "prefill_chunk": 64},
    }
    file = folder / f"{way}.yaml"
    file.write_text(yaml.safe_dump(recipe))
    bundle = Bundle.open(build(make_plan(load_recipe(file)), folder / way, prove=False), threads=1)
    generations = [bundle.generate(prompt, max_new_tokens=NEW_TOKENS, adaptive=False) for prompt in token_ids()]
    assert [one.token_ids for one in generations] == expected
    new_tokens, rounds = sum(len(one.token_ids) - 1 for one in generations), sum(one.rounds for one in generations)
    assert new_tokens / rounds >= MEAN_ACCEPTED[way]
