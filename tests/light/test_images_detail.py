"""Pictures with less detail (OpenAI's detail "low"): fewer rows, told apart by their key."""

from typing import Any

import numpy as np
import pytest

from speccompile.bundle.media import PIXELS, PLACES
from speccompile.compiler.checkpoints.images import read_images
from speccompile.errors import PromptError
from speccompile.runtime.images.conversations import split_images
from speccompile.runtime.images.encoder import LowDetail, Picture
from speccompile.runtime.images.families import FAMILIES
from speccompile.runtime.images.limits import LOW_SIDE
from speccompile.runtime.images.reader import ImageReader
from speccompile.serving.http.reading import tasks
from tests import vision

LARGE = {"qwen2_5_vl": {"size": {"shortest_edge": 784, "longest_edge": 4 * LOW_SIDE**2}},
         "mistral3": {"size": {"longest_edge": 2 * LOW_SIDE}}, "gemma4": {"max_soft_tokens": 280}}  # fmt: skip


NAMES = ["gemma4", "idefics3", "internvl", "lfm2_vl", "llava_onevision", "mistral3", "qwen2_5_vl"]


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_with_less_detail_has_fewer_rows(tmp_path, monkeypatch, name):
    own = vision.family(name)
    monkeypatch.setitem(vision._PROCESSORS, own, vision._PROCESSORS[own] | LARGE.get(name, {}))
    settings = read_images(vision.save(vision.model(name), name, tmp_path))
    family, image = FAMILIES[settings.family](settings), vision.picture(700, 900)
    reader = ImageReader(settings, lambda: pytest.fail("nothing is encoded here"), None)
    whole, low = reader.pictures([image, LowDetail(image)])
    assert family.n_rows(low.grid) < family.n_rows(whole.grid)
    assert whole.key != low.key
    assert family.text(low.grid).count(settings.token or "") == family.n_rows(low.grid)
    runs = family.low.runs(image)
    if PLACES in runs[0]:
        rows = sum(len(run[PIXELS]) for run in runs) // settings.settings["merge"] ** 2
    else:
        rows = family.n_rows(low.grid) if name == "llava_onevision" else len(runs) * settings.tile_rows
    assert rows == family.n_rows(low.grid)


def test_a_small_picture_keeps_its_rows(tmp_path):
    settings = read_images(vision.save(vision.model("qwen3_vl"), "qwen3_vl", tmp_path))
    family, image = FAMILIES[settings.family](settings), vision.picture(40, 90)
    assert Picture.of(image, family).grid == Picture.of(image, family, is_low=True).grid


@pytest.mark.parametrize("detail", ["auto", "high", "low", None])
def test_detail_comes_with_a_picture(detail):
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8=", "detail": detail}}
    _, (source,) = split_images([{"role": "user", "content": [part]}])
    assert source == (LowDetail(b"hello") if detail == "low" else b"hello")
    assert tasks.read_image(tasks._written(source)) == source


@pytest.mark.parametrize("detail", ["tiny", 7, {}])
def test_another_detail_is_refused(detail: Any):
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8=", "detail": detail}}
    with pytest.raises(PromptError, match=r"\[0\].image_url.detail: .*, expected auto, high or low"):
        split_images([{"role": "user", "content": [part]}])


def test_a_picture_with_less_detail_is_smaller_before_it_is_read(tmp_path):
    settings = read_images(vision.save(vision.model("internvl"), "internvl", tmp_path))
    family, image = FAMILIES[settings.family](settings), vision.picture(112, 56)
    (tile,) = family.low.runs(image)
    assert np.array_equal(tile[PIXELS], family.runs(image)[-1][PIXELS])
