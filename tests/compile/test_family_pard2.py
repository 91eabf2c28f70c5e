"""PARD-2: its formula against transformers' model over embeddings. `test_family_rounds` checks its drafter."""

from functools import partial

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from speccompile.compiler.build.inputs import open_round
from speccompile.compiler.build.modules import drafter_context
from speccompile.compiler.prove.drafts import DrafterInputs
from speccompile.drafters.pard2 import reference
from tests.compile.eager_rounds import check_generation, plan_of
from tests.heads.pard2 import MASK, pard2


@torch.no_grad()
@pytest.mark.parametrize("form", [pard2, partial(pard2, model_type="qwen3", tied=True)], ids=["Llama", "Qwen 3"])
def test_the_formula_is_the_language_model_over_embeddings_and_features(form, tmp_path):
    """Feed it as pard2_infer.py does: features of the token before, nothing before the first, the last for masks."""
    context = drafter_context(open_round(plan_of(tmp_path, form, "tokens: 4")).draft)
    (teacher,) = reference.teachers(context)
    features = np.random.default_rng(0).standard_normal((5, context.inputs.target and len(context.head.taps) * 64))
    fed = DrafterInputs([1, 2, 3, 4, 5, 7], features.astype(np.float32), [2, 3, 4, 5, 7])
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "head")
    read = np.concatenate([0 * features[:1], features, *[features[-1:]] * 3]).astype(np.float32)
    weight = torch.load(tmp_path / "head" / "warp_model.bin")["target_proj.weight"]
    embedded = model.get_input_embeddings()(torch.tensor([*fed.known, MASK, MASK, MASK]))
    expected = model(inputs_embeds=(embedded + 0.5 * torch.tensor(read) @ weight.T)[None]).logits[0, -4:]
    np.testing.assert_allclose(teacher(fed, [11, 12, 13]), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.sweep("the same folder without features is PARD's; a bundle with its proof")
def test_drafts_without_features_as_pard(tmp_path):
    plan = plan_of(tmp_path, pard2, "kind: pard, tokens: 4")
    assert plan.drafter.mask_token == MASK
    check_generation(plan, tmp_path)
