"""The loss by the precision of an encoder of pictures, against the formulas."""

import numpy as np
import pytest
import torch

from speccompile.compiler.build.image_loss import check_loss, measure_loss
from speccompile.compiler.build.pictured_drafts import PicturedPrompt
from speccompile.compiler.checkpoints.images import read_images
from speccompile.compiler.models.image_inputs import given_rows, image_features
from speccompile.errors import ProofError
from speccompile.runtime.images.families import FAMILIES
from tests import vision

SHOWN = [vision.picture(40, 90), vision.picture(90, 33, 1)]


@pytest.fixture(scope="module", params=["llava", "pixtral", "qwen3_vl"])
def prompt(request, tmp_path_factory) -> PicturedPrompt:
    """Return a prompt with two pictures: features as one tensor, as tensors by picture, and with those of layers."""
    whole = vision.model(request.param)
    settings = read_images(vision.save(whole, request.param, tmp_path_factory.mktemp(request.param)))
    family, ids = FAMILIES[settings.family](settings), [5, 9]
    for each in SHOWN:
        ids += [settings.token_id] * family.n_rows(family.grid(*each.shape[:2])) + [7, 11, 200]
    return PicturedPrompt(whole, family, ids, SHOWN)


def test_the_same_rows_lose_nothing(prompt):
    own = image_features(prompt.whole, prompt.family, SHOWN)
    assert measure_loss(prompt, own) == {"rms_error": 0.0, "same_argmax": 1.0, "kl_divergence": 0.0}


@torch.no_grad()
def test_the_loss_is_that_of_the_rows(prompt):
    own = image_features(prompt.whole, prompt.family, SHOWN)
    torch.manual_seed(0)
    rows = own + own.std() * torch.randn_like(own)
    with given_rows(prompt.whole, rows):
        assert torch.equal(image_features(prompt.whole, prompt.family, SHOWN), rows)
        found = prompt.logits()
    assert torch.equal(image_features(prompt.whole, prompt.family, SHOWN), own)
    if own.shape[1] == prompt.whole.config.text_config.hidden_size:  # else layers get rows as well
        embedded = prompt.whole.get_input_embeddings()(torch.tensor([prompt.ids]))
        embedded[0, torch.tensor(prompt.ids) == prompt.family.images.token_id] = rows
        hidden = prompt.whole.model.language_model(inputs_embeds=embedded).last_hidden_state
        np.testing.assert_allclose(found, prompt.whole.lm_head(hidden)[0].numpy(), rtol=0, atol=1e-5)
    p, q = (torch.tensor(each[:-1]).double().log_softmax(1) for each in (prompt.logits(), found))
    loss = measure_loss(prompt, rows)
    assert loss["rms_error"] == pytest.approx(float((rows - own).norm() / own.norm()), abs=1e-5)
    assert loss["kl_divergence"] == pytest.approx(float((p.exp() * (p - q)).sum(1).mean()), abs=1e-5)
    assert loss["same_argmax"] == pytest.approx(float((p.argmax(1) == q.argmax(1)).float().mean()), abs=1e-4)
    assert loss["kl_divergence"] > 1e-3


def test_a_loss_beyond_the_bound_is_refused_with_the_bound_that_accepts_it():
    loss = {"precision": "int8", "rms_error": 0.0123, "same_argmax": 0.75, "kl_divergence": 0.0211}
    check_loss(loss, 0.0211, 40)
    with pytest.raises(
        ProofError, match=r"an encoder in int8 changes .* by 0\.021100 nats .*40 tokens.*1\.23 %"
    ) as told:
        check_loss(loss, 0.01, 40)
    assert "prove.max_encoder_divergence=0.022" in told.value.hint
