"""Rope scaling on both sides of the original length: the tokens of transformers, from before it to far behind it."""

import pytest
import torch
import yaml
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from speccompile.compiler.build import build
from speccompile.recipe import load_recipe, make_plan
from speccompile.runtime import Bundle
from tests import zoo

pytestmark = pytest.mark.builds(1)

ORIGINAL, LONGEST = 16, 96
THETA = {"rope_theta": 10000.0}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = {"rope_type": "yarn", "factor": 6.0, "original_max_position_embeddings": ORIGINAL}
ROPES = {
    "linear": ("llama", {"rope_type": "linear", "factor": 6.0} | THETA),
    "llama3": ("llama", LLAMA3 | {"original_max_position_embeddings": ORIGINAL} | THETA),
    "yarn": ("qwen3", YARN | THETA),
    "yarn with factors of its own": ("llama", YARN | THETA | {"attention_factor": 1.3, "beta_fast": 9, "beta_slow": 2}),
    "yarn of DeepSeek": ("llama", YARN | THETA | {"mscale": 0.7, "mscale_all_dim": 1.0, "truncate": False}),
    "one for each kind of layer": (
        "gemma3_text",
        {"full_attention": {"rope_type": "linear", "factor": 8.0} | THETA,
         "sliding_attention": {"rope_type": "default"} | THETA},
    ),
}  # fmt: skip


@pytest.mark.sweep("a build each", but=["yarn with factors of its own"])
@pytest.mark.parametrize("name", ROPES)
def test_tokens_before_and_behind_the_original_length(name, tmp_path, monkeypatch):
    kind, rope = ROPES[name]
    monkeypatch.setenv("SPECCOMPILE_CACHE_DIR", str(tmp_path / "cache"))
    positions = ORIGINAL if rope.get("rope_type") == "yarn" else LONGEST  # YaRN's factor says how far it reaches
    settings = zoo.config(kind).to_dict() | {"rope_parameters": rope, "max_position_embeddings": positions}
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind](**settings), attn_implementation="eager")
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    model.eval().save_pretrained(tmp_path / "target")
    recipe = {
        "name": "long", "target": {"model": "target"}, "drafter": {"kind": "prompt_lookup", "tokens": 3},
        "cache": {"max_length": LONGEST, "prefill_chunk": 16}, "prove": {"max_new_tokens": 8},
    }  # fmt: skip
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    build(make_plan(load_recipe(tmp_path / "recipe.yaml")), tmp_path / "bundle")
    model.generation_config.eos_token_id = None
    with Bundle.open(tmp_path / "bundle") as bundle:
        for length in (ORIGINAL // 2, 3 * ORIGINAL):
            prompt = torch.randint(3, zoo.VOCABULARY, (1, length))
            wanted = model.generate(prompt, max_new_tokens=40, do_sample=False, pad_token_id=0)[0, length:].tolist()
            found = bundle.generate(prompt[0].tolist(), max_new_tokens=40, ignore_eos=True)
            assert found.token_ids == wanted
