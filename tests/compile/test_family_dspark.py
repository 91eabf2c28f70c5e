"""DSpark: its confidence, and rounds of many tokens. `test_family_rounds` checks its drafter."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from speccompile.compiler.build import build
from speccompile.recipe import load_recipe, make_plan
from speccompile.runtime import Bundle
from tests import zoo
from tests.compile.eager_rounds import check_generation, plan_of
from tests.compile.test_family_rounds import HEADS
from tests.compile.tiny_bundles import save
from tests.heads import dflash as heads

pytestmark = pytest.mark.builds(2)


@pytest.mark.sweep("a bundle with its proof")
def test_ends_a_chain_where_it_is_unsure(tmp_path):
    """Count chains that end and chains that do not: the proof of their ends needs both."""
    plan = plan_of(tmp_path, HEADS["dspark"]["vanilla"], "kind: auto, threshold: 0.3")
    assert (plan.drafter.kind, plan.graphs, plan.drafter.tokens) == ("dspark", "fused", 5)
    check_generation(plan, tmp_path)
    bundle = Bundle.open(tmp_path / "bundle", threads=1)
    lengths = bundle.generate([*range(3, 60)], max_new_tokens=20, adaptive=False).draft_lengths
    assert min(lengths) < 5
    assert max(lengths) > 0


@torch.no_grad()
def test_rounds_of_many_tokens(tmp_path):
    """Accept nearly all drafts, of a target that repeats its last token and a Markov head that says so: the context
    grows by whole blocks."""
    model = zoo.model("llama_tied")
    for name, parameter in model.model.layers.named_parameters():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            parameter *= 0.02
    save(model, tmp_path / "target", tokenizer=False)
    head = heads.specforge(tmp_path / "head", model.config, own={"markov_rank": 64})
    tensors = load_file(head / "model.safetensors")
    rows = torch.randn(zoo.VOCABULARY, 64, generator=torch.Generator().manual_seed(9))
    tensors |= {"markov_head.markov_w1.weight": rows, "markov_head.markov_w2.weight": rows.clone()}
    save_file(tensors, head / "model.safetensors")
    recipe = "name: tiny\ntarget: {model: target}\ndrafter: {kind: dspark, model: head}\ngraphs: separate\n"
    (tmp_path / "recipe.yaml").write_text(recipe + "cache: {max_length: 96, prefill_chunk: 16, batch_size: 2}\n")
    build(make_plan(load_recipe(tmp_path)), tmp_path / "bundle", prove=False)
    bundle = Bundle.open(tmp_path / "bundle", threads=1)
    prompts = [[*range(3, 50)], [5, 9, 200]]
    for prompt, drafted in zip(prompts, bundle.generate_batch(prompts, max_new_tokens=30, adaptive=False), strict=True):
        assert drafted.token_ids == bundle.generate(prompt, max_new_tokens=30, autoregressive=True).token_ids
        assert drafted.mean_accepted > 4
