"""Targets that see pictures, on text: their logits are those of the text decoder, bit for bit."""

import pytest
import torch
from torch import Tensor, nn

from speccompile.bundle.media import AXES
from speccompile.compiler.checkpoints.images import read_images
from speccompile.compiler.models.load import load_model
from speccompile.compiler.models.probe import probe
from speccompile.compiler.step.decoder import CacheShape
from speccompile.compiler.step.media_rows import MediaRows, same_picture
from speccompile.compiler.step.verify import RoundInputs, Verify
from speccompile.errors import UnsupportedModelError
from tests import vision

TOKENS = torch.arange(9, 9 + 14 * 6, 6)[None]


def round_of(verify: Verify, **media: Tensor) -> Tensor:
    """Return the logits of a window of drafts."""
    count = TOKENS.shape[1]
    caches = [torch.zeros(shape) for shape in verify.decoder.cache_shapes().values()]
    numbers = torch.tensor([1]), torch.tensor([count]), torch.tensor([0])
    return verify(RoundInputs(TOKENS, *numbers, torch.arange(count), **media), caches).logits


@torch.no_grad()
@pytest.mark.parametrize("name", [name for name in vision.NAMES if name != "smolvlm"])
def test_texts_have_the_same_bits(tmp_path, name):
    folder = vision.save(vision.model(name), name, tmp_path)
    images = read_images(folder)
    decoder = probe(load_model(folder, 64), CacheShape(1, 96, 64))
    expected = round_of(Verify(decoder))
    zeros = {"media": torch.zeros(1, images.width), "media_rows": torch.zeros_like(TOKENS)}
    if images.both_ways:
        zeros["media_blocks"] = torch.zeros_like(TOKENS)
    if images.axes:
        zeros["media_offsets"] = torch.zeros(1, AXES, TOKENS.shape[1], dtype=torch.int64)
    its = images.both_ways, images.axes, images.stacked, images.in_windows, images.padded
    seeing = Verify(decoder, media=MediaRows(images.width, *its))
    assert torch.equal(round_of(seeing, **zeros), expected)
    zeros["media_rows"] = zeros["media_rows"].index_fill(1, torch.tensor([3, 4]), 1)
    zeros["media"] = torch.ones_like(zeros["media"])
    assert not torch.equal(round_of(seeing, **zeros), expected)


def test_rows_of_a_picture_see_each_other():
    found = same_picture(torch.tensor([[0, 1, 1, 0, 2, 2, 2]]), torch.zeros(1, 7, dtype=torch.int64))
    expected = torch.zeros(7, 7, dtype=torch.bool)
    expected[1:3, 1:3] = expected[4:, 4:] = True
    assert torch.equal(found[0], expected)


def test_a_model_without_one_rotary_module_is_refused():
    window, offsets = torch.zeros(1, 3, dtype=torch.int64), torch.zeros(1, AXES, 3, dtype=torch.int64)
    with (
        pytest.raises(UnsupportedModelError, match="Linear has 0 modules for rotary embeddings, expected one"),
        MediaRows(4, axes=(0, 1)).seeing(nn.Linear(2, 2), window, None, None, offsets),
    ):
        pass
