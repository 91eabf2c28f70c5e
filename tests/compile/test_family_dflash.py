"""DFlash: its reference against transformers' assistant, its drafter against the reference, and a bundle."""

from functools import partial

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, MuseGlimmerAssistantModel
from transformers.cache_utils import DFlashCache

from speccompile.compiler.build.inputs import open_round
from speccompile.compiler.build.modules import drafter_context
from speccompile.compiler.prove.drafts import DrafterInputs
from speccompile.drafters.dflash import reference
from tests import zoo
from tests.compile.eager_rounds import check_generation, check_rounds, plan_of
from tests.heads import dflash as heads

SLIDING = {"layer_types": ["sliding_attention", "full_attention"], "use_sliding_window": True, "sliding_window": 6}


def with_mask(folder, target):
    """Write a head with a mask row of its own, and with scales."""
    scales = {"input_embedding_scale": 2.0, "output_multiplier": 0.5, "final_logit_softcapping": 4.0}
    heads.zlab(folder, target, own=scales, **SLIDING)
    path = folder / "model.safetensors"
    save_file(load_file(path) | {"mask_embedding": torch.linspace(-1, 1, target.hidden_size)}, path)


WRITERS = {
    "plain": heads.zlab,
    "causal in both kinds of layers": partial(heads.zlab, is_causal=True, **SLIDING),
    "scaled, an own mask row": with_mask,
    "anchor, own ends": heads.deepspec,
    "DFlash2": heads.dflash2,
    "transformers": partial(heads.transformers, **(SLIDING | {"sliding_window": 9})),
    "own vocabulary, window from the anchor": partial(
        heads.speculators, draft_size=64, transformer_layer_config=SLIDING
    ),
}


@torch.no_grad()
@pytest.mark.parametrize("layers", [{}, {k: v for k, v in SLIDING.items() if k != "use_sliding_window"}])
def test_the_reference_is_the_assistant_of_transformers(tmp_path, layers):
    plan = plan_of(tmp_path, partial(heads.transformers, **layers), "tokens: 3")
    (teacher,) = reference.teachers(drafter_context(open_round(plan).draft))
    features = np.random.default_rng(1).standard_normal((11, 128)).astype(np.float32)
    model = MuseGlimmerAssistantModel.from_pretrained(tmp_path / "head").eval()
    target = AutoModelForCausalLM.from_pretrained(tmp_path / "target")
    cache = DFlashCache(config=model.config)
    cache.set_previous_accepted_tokens(11)
    block = target.get_input_embeddings()(torch.tensor([[17, *[heads.MASK] * (heads.BLOCK - 1)]]))
    output = model(
        noise_embeds=block, context_hidden_states=torch.tensor(features)[None], cache=cache,
        position_ids=torch.arange(11 + heads.BLOCK)[None],
    )  # fmt: skip
    expected = target.lm_head(output.last_hidden_state[0, 1:])
    found = teacher(DrafterInputs([*range(11), 17], features, [*range(1, 11), 17]), [3, 4, 5])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("writer", WRITERS)
def test_drafts_of_rounds_are_those_of_the_whole_text(tmp_path, writer):
    check_rounds(plan_of(tmp_path, WRITERS[writer], "kind: auto"))


def test_fewer_drafts_are_read_off_a_whole_block(tmp_path):
    plan = plan_of(tmp_path, heads.zlab, "tokens: 2")
    assert plan.drafter.head.tokens == 4
    check_rounds(plan)
    whole, cut = (
        reference.teachers(drafter_context(open_round(each).draft))[0]
        for each in (plan_of(tmp_path / "whole", heads.zlab, "tokens: 4"), plan)
    )
    fed = DrafterInputs([1, 2, 3], np.ones((2, 128), np.float32), [2, 3])
    np.testing.assert_array_equal(whole(fed, [7, 8])[:2], cut(fed, [7]))


@pytest.mark.sweep("a bundle with its proof; rounds are in the first tier")
def test_generates_what_the_target_generates(tmp_path):
    plan = plan_of(tmp_path, partial(heads.dflash2, layer_types=["full_attention"] * 2), "kind: auto")
    assert (plan.drafter.kind, plan.graphs, plan.drafter.tokens) == ("dflash", "fused", 4)
    check_generation(plan, tmp_path)


def test_its_folder_is_that_of_the_assistant(tmp_path):
    """Compare the folder of the test above with the one that transformers writes."""
    heads.transformers(tmp_path / "written", zoo.config("llama"))
    model = MuseGlimmerAssistantModel.from_pretrained(tmp_path / "written")
    model.save_pretrained(tmp_path / "saved")
    saved, written = (load_file(tmp_path / name / "model.safetensors") for name in ("saved", "written"))
    assert {name: tensor.shape for name, tensor in saved.items()} == {n: t.shape for n, t in written.items()}
