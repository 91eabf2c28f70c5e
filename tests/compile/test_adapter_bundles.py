"""A bundle of a target and a draft model with adapters gives the tokens of peft's model."""

import pytest
import torch

from speccompile.compiler.build import build
from speccompile.errors import RecipeError
from speccompile.recipe import load_recipe, make_plan
from speccompile.runtime import Bundle
from tests import adapters

pytestmark = pytest.mark.builds(2)

PROMPT = [5, 9, 20, 31, 7, 13]
NEW = 16
RECIPE = """
name: adapted
target: {model: base, adapter: adapter}
drafter: {kind: model, model: base, adapter: adapter, tokens: 2}
cache: {max_length: 48, prefill_chunk: 16}
prove: {max_new_tokens: 8}
"""


def test_a_bundle_gives_the_tokens_of_peft(tmp_path):
    settings = {"target_modules": ["q_proj", "v_proj", "up_proj"], "use_dora": True, "modules_to_save": ["lm_head"]}
    model = adapters.write(tmp_path, **settings)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    plan = make_plan(load_recipe(tmp_path / "recipe.yaml"))
    notes = [note for note in plan.notes if "adapter" in note]
    assert notes[:1] == ["the adapter 'adapter' (DoRA of rank 4, 7 changed weights) is merged into the drafter"]
    assert any(note.endswith("is merged into the target") for note in notes)
    assert {"adapter_config.json", "adapter_model.safetensors"} <= {file.as_posix() for file in plan.target.files}
    bundle = Bundle.open(build(plan, tmp_path / "bundle"))
    expected = model.generate(
        input_ids=torch.tensor([PROMPT]), max_new_tokens=NEW, do_sample=False, pad_token_id=0, eos_token_id=None
    )
    found = bundle.generate(PROMPT, max_new_tokens=NEW, ignore_eos=True, adaptive=False)
    assert found.token_ids == expected[0, len(PROMPT) :].tolist()
    assert found.acceptance_length > 2.5, "the drafter with the same adapter is the target"


@pytest.mark.parametrize("kind", ["kind: prompt_lookup", "kind: medusa, model: base"])
def test_drafters_that_are_no_models_take_none(tmp_path, kind):
    adapters.write(tmp_path, target_modules=["q_proj"])
    section = "kind: model, model: base"
    (tmp_path / "recipe.yaml").write_text(RECIPE.replace(section, kind))
    with pytest.raises(RecipeError, match=r"drafter\.adapter"):
        make_plan(load_recipe(tmp_path / "recipe.yaml"))
