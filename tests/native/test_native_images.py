"""Pictures in C++ against Python's, which tests/light compares with Pillow and transformers: bit for bit."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from speccompile.bundle.media import PIXELS
from speccompile.compiler.checkpoints.images import read_images
from speccompile.errors import BundleError, PromptError
from speccompile.machine.formats.image_settings import ImageSettings
from speccompile.runtime.images import prompts
from speccompile.runtime.images.encoder import Encoder, Picture
from speccompile.runtime.images.families import FAMILIES
from speccompile.runtime.images.media import SequenceMedia
from speccompile.runtime.images.resize import FILTERS, resize
from tests import vision
from tests.native.bundle_lines import outcome
from tests.native.image_lines import ImageLines, native
from tests.suite.selection import sweep_but

__all__ = ["native"]  # a fixture

NAMES = ("idefics3", "internvl", "gemma3", "gemma4", "lfm2_vl", "llava", "llava_next", "llava_onevision", "mistral3",
         "pixtral", "qwen2_5_vl", "qwen3_vl")  # fmt: skip
SIZES = [(1, 1), (1, 40), (40, 1), (7, 300), (300, 7), (56, 56), (57, 56), (64, 200), (200, 64), (33, 30), (112, 113),
         (480, 640), (640, 480)]  # fmt: skip


@pytest.fixture(
    scope="module",
    params=sweep_but({"idefics3", "gemma3", "lfm2_vl", "llava", "qwen3_vl"}, list(NAMES), "more families"),
)
def settings(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ImageSettings:
    name = request.param
    return read_images(vision.save(vision.model(name), name, tmp_path_factory.mktemp(name)))


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("like_torch", [False, True])
def test_resizing_is_python_s(native: ImageLines, name: str, like_torch: bool) -> None:
    random = np.random.default_rng(0)
    sizes = [[int(2 ** random.uniform(0, 8)) for _ in range(4)] for _ in range(30)]
    for height, width, high, wide in [[1, 1, 9, 4], [5, 7, 5, 7], [255, 3, 2, 200], *sizes]:
        image = random.integers(0, 256, (height, width, 3), np.uint8)
        _, found = native.bytes_of("resize", [high, wide, name, like_torch], image=native.image(image))
        assert found == resize(image, high, wide, name, like_torch=like_torch).tobytes(), (height, width, high, wide)


@pytest.mark.parametrize("low", [False, True])
def test_inputs_of_the_encoder_are_python_s(native: ImageLines, settings: ImageSettings, low: bool) -> None:
    whole = FAMILIES[settings.family](settings)
    family = whole.low if low else whole
    for height, width in SIZES:
        image, grid = vision.picture(height, width), family.grid(height, width)
        found, written = native.bytes_of("runs", settings.to_json(), low=low, image=native.image(image))
        runs = family.runs(image)
        assert written == b"".join(value.tobytes() for run in runs for value in run.values()), (height, width)
        shapes = [[[name, str(value.dtype), list(value.shape)] for name, value in run.items()] for run in runs]
        assert found["runs"] == shapes
        assert found["grid"] == [grid.rows, grid.columns, grid.whole]
        assert (found["rows"], found["text"], found["alone"]) == (family.n_rows(grid), family.text(grid), whole.alone)


@pytest.mark.parametrize("settings", ["gemma4"], indirect=True)
def test_a_picture_without_a_position_is_refused_as_in_python(native: ImageLines, settings: ImageSettings) -> None:
    settings = replace(settings, settings={**settings.settings, "places": 207})
    family = FAMILIES[settings.family](settings)
    for width in (69, 300):
        image = vision.picture(1, width)
        asked = partial(native.bytes_of, "runs", settings.to_json(), low=False, image=native.image(image))
        found, expected = outcome(asked), outcome(partial(family.grid, *image.shape[:2]))
        assert width == 69 or found == expected


@pytest.mark.parametrize("settings", ["llava_next", "llava_onevision"], indirect=True)
def test_rows_of_tiles_become_lines_as_in_python(native: ImageLines, settings: ImageSettings, tmp_path: Path) -> None:
    family, random = FAMILIES[settings.family](settings), np.random.default_rng(0)
    for height, width in SIZES:
        grid = family.grid(height, width)
        rows = [random.standard_normal((settings.tile_rows + 1, 4), np.float32) for _ in range(grid.n_tiles)]
        (tmp_path / "rows").write_bytes(b"".join(each.tobytes() for each in rows))
        found, written = native.bytes_of(
            "joined", settings.to_json(), width=4, rows=str(tmp_path / "rows"), counts=[len(each) for each in rows],
            image=native.image(vision.picture(height, width)),
        )  # fmt: skip
        expected = family.joined(rows, grid)
        assert (found, written) == (len(expected), expected.tobytes()), (height, width)


def test_places_of_pictures_are_python_s(native: ImageLines, settings: ImageSettings) -> None:
    family = FAMILIES[settings.family](settings)
    images = [vision.picture(40, 90), vision.picture(90, 33, 1), vision.picture(40, 90)]
    pictures = [Picture.of(each, family) for each in images]
    ids, row = [3, 5], settings.token_id
    for picture in pictures:
        ids += [*[row] * family.n_rows(picture.grid), 7, 9]
    media = SequenceMedia(pictures, ids, Encoder(family, lambda: pytest.fail("nothing is encoded here")))
    given = {"images": [native.image(each) for each in images]}
    found = native.ask("media", settings.to_json(), ids=ids, **given)
    assert found["identity"] == media.identity
    assert found["blocks"] == media.blocks.tolist()
    stops = range(1, len(ids) + 1)
    assert found["stops"] == [[media.chunk_stop(0, stop), media.chunk_stop(max(0, stop - 3), stop)] for stop in stops]
    assert found["reusable"] == [media.reusable(stop) for stop in stops]
    if settings.axes:
        assert found["offsets"] == media.offsets_between(0, len(ids) + 2).tolist()
    with pytest.raises(PromptError, match=f"the prompt has {ids.count(row) + 1} placeholders of pictures"):
        native.ask("media", settings.to_json(), ids=[*ids, row], **given)
    if settings.both_ways or settings.axes:
        first = ids.index(row)
        with pytest.raises(PromptError, match=r"the prompt has tokens among the .* placeholders of picture 1"):
            native.ask("media", settings.to_json(), ids=[*ids[: first + 1], 5, *ids[first + 1 :]], **given)


@pytest.mark.parametrize("settings", ["gemma3"], indirect=True)
def test_a_picture_that_was_begun_and_is_held_by_a_slot_now_is_no_other_one(
    native: ImageLines, settings: ImageSettings
) -> None:
    family, row = FAMILIES[settings.family](settings), settings.token_id
    shown = [vision.picture(40, 90), vision.picture(90, 33, 1), vision.picture(60, 60, 2)]
    ids = [part for _ in shown for part in (5, *[row] * settings.tile_rows)]
    first = [float(family.runs(each)[0][PIXELS].reshape(-1)[0]) for each in shown]
    assert len(set(first)) == len(shown)
    start = ids.index(5, 1)
    found = native.ask(
        "prepared", settings.to_json(), ids=ids, images=[native.image(each) for each in shown], start=start
    )
    assert found == [each for value in first[1:] for each in (None, *[value] * settings.tile_rows)]


def test_placeholders_are_expanded_and_kept_apart_as_in_python(native: ImageLines) -> None:
    for text in ("a <image> b <image>", "no picture", "<image>" * 2, "", "<image>"):
        given = text, "<image>", ["[1]", "[2]"], "(<image>)"
        assert outcome(partial(native.ask, "prompt", given)) == outcome(partial(prompts.with_pictures, *given))
    for text in ("é<image>\ue000 <row>", "<ima<image>ge>", "plain"):
        tokens = ["<image>", "<row>", "é<"]
        assert native.ask("marked", [text, tokens]) == prompts.marked(text, tokens, prompts.unused_mark(text))


@pytest.mark.parametrize("settings", ["idefics3", "qwen2_5_vl", "llava_onevision"], indirect=True)
def test_settings_that_make_no_sense_are_refused(native: ImageLines, settings: ImageSettings) -> None:
    image = native.image(vision.picture(40, 90))
    written = settings.to_json()
    for name, value in {"tile": [0, 56], "tile_rows": -1, "std": [0, 1, 1], "mean": [1], "resample": "nearest",
                        "rescale": "x", "token": 5, "token_id": None}.items():  # fmt: skip
        with pytest.raises(BundleError, match=f"plan.images.{name}: received"):
            native.ask("runs", written | {name: value}, image=image, low=False)
    for name in written["settings"]:
        with pytest.raises(BundleError, match=f"plan.images.settings.{name}: received"):
            native.ask("runs", written | {"settings": written["settings"] | {name: {}}}, image=image, low=False)
    with pytest.raises(Exception, match=r"sees pictures as 'other' does, expected one of gemma3, .*no other"):
        native.ask("runs", replace(settings, family="other").to_json(), image=image, low=False)
    assert json.dumps(written)  # what a manifest holds
