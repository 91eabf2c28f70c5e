"""Tiles and placeholders of pictures against transformers' own processors, and pictures told apart by content."""

import re
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.functional import interpolate
from transformers import (
    AutoTokenizer,
    Gemma3Processor,
    Gemma4Processor,
    Idefics3Processor,
    InternVLProcessor,
    LlavaNextProcessor,
    LlavaOnevisionProcessor,
    LlavaProcessor,
    Qwen2_5_VLProcessor,
    Qwen3VLProcessor,
    SmolVLMProcessor,
)
from transformers.models.smolvlm import processing_smolvlm
from transformers.processing_utils import ProcessorMixin

from speccompile.bundle.media import PLACES
from speccompile.compiler.checkpoints.images import read_images
from speccompile.compiler.models.image_inputs import pixel_inputs
from speccompile.errors import BundleError, CheckpointError, PromptError, UnsupportedModelError
from speccompile.machine.formats.image_settings import ImageSettings
from speccompile.runtime.images import encoder as encoders
from speccompile.runtime.images.encoder import Encoder
from speccompile.runtime.images.families import FAMILIES
from speccompile.runtime.images.media import SequenceMedia
from speccompile.runtime.images.reader import ImageReader
from speccompile.runtime.text.tokenizer import Tokenizer
from tests import multimodal, vision

PROCESSORS = {
    "qwen2_5_vl": Qwen2_5_VLProcessor,
    "qwen3_vl": Qwen3VLProcessor,
    "qwen3_5": Qwen3VLProcessor,
    "gemma3": Gemma3Processor,
    "gemma4": Gemma4Processor,
    "llava": LlavaProcessor,
    "llava_next": LlavaNextProcessor,
    "llava_onevision": LlavaOnevisionProcessor,
    "idefics3": Idefics3Processor,
    "smolvlm": SmolVLMProcessor,
    "internvl": InternVLProcessor,
}
SIZES = [(1, 1), (1, 40), (40, 1), (7, 300), (300, 7), (56, 56), (57, 56), (64, 200), (200, 64), (33, 30), (112, 113),
         (480, 640), (640, 480)]  # fmt: skip


@pytest.fixture(scope="module", params=vision.NAMES)
def seen(request, tmp_path_factory) -> Any:
    """Return the folder, settings and reader of a family, without an encoder."""
    folder = vision.save(vision.model(request.param), request.param, tmp_path_factory.mktemp(request.param))
    settings = read_images(folder)
    tokenizer = Tokenizer(folder / "tokenizer.json", settings.placeholders)
    reader = ImageReader(settings, lambda: pytest.fail("nothing is encoded here"), tokenizer)
    return request.param, folder, settings, reader


def shown(name: str, images: list[Any]) -> Any:
    pictures = [Image.fromarray(each) for each in images]
    return pictures if name in vision.FLAT else [pictures]


@vision.width_first()
def test_pixels_are_those_of_transformers_bit_for_bit(seen):
    name, folder, settings, _ = seen
    if name == "lfm2_vl":
        pytest.skip("transformers' own is there with torchvision alone: see the next test")
    family, processor = FAMILIES[settings.family](settings), vision.processor(folder)
    for height, width in SIZES:
        image = vision.picture(height, width)
        expected = processor(images=shown(name, [image]), return_tensors="np")
        for key, found in pixel_inputs(family, [image]).items():
            assert np.array_equal(found.numpy(), np.asarray(expected[key])), (key, height, width)


@pytest.mark.parametrize("seen", ["lfm2_vl"], indirect=True)
def test_pixels_of_lfm2_are_those_of_torch_bit_for_bit(seen):
    """torchvision's `resize` and `normalize` of uint8 are these functions of torch."""
    _, _, settings, _ = seen
    family, scale = FAMILIES[settings.family](settings), torch.tensor(0.5) * (1.0 / settings.rescale)
    for height, width in SIZES:
        image, grid = vision.picture(height, width), family.grid(height, width)
        sizes = [(grid.rows * 32, grid.columns * 32)] * (grid.rows > 0) + [grid.size] * grid.whole
        expected = []
        for size in sizes:
            channels = torch.from_numpy(image).permute(2, 0, 1)[None]
            shown = interpolate(channels, size=size, mode="bilinear", align_corners=False, antialias=True)[0]
            shown = (shown.float() - scale) / scale
            side = 32 if len(expected) == 0 and grid.rows else max(size)
            for top in range(0, size[0], side):
                expected += [shown[:, top : top + side, left : left + side] for left in range(0, size[1], side)]
        found = pixel_inputs(family, [image])
        assert found["spatial_shapes"].tolist() == [[each.shape[1] // 8, each.shape[2] // 8] for each in expected]
        for each, patches in zip(expected, found["pixel_values"], strict=True):
            cut = each.unfold(1, 8, 8).unfold(2, 8, 8).permute(1, 2, 3, 4, 0).reshape(-1, 3 * 8 * 8)
            assert torch.equal(patches[: len(cut)], cut), (height, width)


@pytest.mark.parametrize("seen", ["gemma4"], indirect=True)
def test_a_picture_beyond_the_positions_of_the_encoder_is_refused(seen):
    settings = seen[2]
    assert settings.settings["places"] == 256
    family = FAMILIES["gemma4"](replace(settings, settings={**settings.settings, "places": 207}))
    assert family.grid(1, 69).columns == 69
    with pytest.raises(PromptError, match="of 300 x 1 pixels, which has 210 patches in a line, expected at most 207"):
        family.grid(1, 300)
    with pytest.raises(BundleError, match=r"plan.images.settings: KeyError\('places'\)"):
        ImageReader(replace(settings, settings={"patch": 4, "merge": 3}), lambda: pytest.fail("not opened"), None)


def test_prompts_are_those_of_transformers_processor(seen, monkeypatch):
    monkeypatch.setattr(processing_smolvlm, "num2words", str)  # for videos, as torchvision is
    monkeypatch.setattr(ProcessorMixin, "check_argument_for_proper_class", lambda *_: None)
    name, folder, settings, reader = seen
    if name in ("lfm2_vl", "mistral3", "pixtral"):
        pytest.skip("transformers' own is there with torchvision alone: see the next test")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    rows = {"image_seq_length" if name in ("gemma3", "internvl") else "image_seq_len": settings.tile_rows}
    rows = {} if settings.family in ("qwen_vl", "gemma4") else rows
    if name == "gemma4":
        tokenizer.image_token, tokenizer.image_token_id = settings.token, settings.token_id
        tokenizer.boi_token, tokenizer.eoi_token = "<|image>", "<image|>"
        tokenizer.boa_token = tokenizer.eoa_token = "<|audio>"
        rows = {"feature_extractor": None}
    if name == "llava_onevision":
        rows = {"num_image_tokens": settings.tile_rows, "vision_feature_select_strategy": "full",
                "vision_aspect_ratio": "anyres_max_2"}  # fmt: skip
    if name in ("llava", "llava_next"):
        rows = {"patch_size": 14, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}
    if name == "gemma3":
        for key, value in {"boi_token": settings.token, "eoi_token": settings.settings["end"],
                           "image_token": settings.row_token, "boi_token_id": settings.token_id - 2,
                           "image_token_id": settings.token_id}.items():  # fmt: skip
            setattr(tokenizer, key, value)
    if name == "internvl":
        for key, value in {"start_image_token": "<img>", "end_image_token": "</img>", "video_token": "<video>",
                           "context_image_token": settings.token, "start_image_token_id": 273,
                           "end_image_token_id": 274, "context_image_token_id": settings.token_id}.items():  # fmt: skip
            setattr(tokenizer, key, value)
    video = {} if name in ("gemma3", "idefics3", "llava", "llava_next") else {"video_processor": None}
    processor = PROCESSORS[name](image_processor=vision.processor(folder), tokenizer=tokenizer, **video, **rows)
    token = settings.token
    prompts = (f"in{token} the", [(40, 90)]), (f"{token}{token}", [(90, 40), (56, 56)]), (f"a{token}", [(7, 300)])
    for text, sizes in prompts:
        images = [vision.picture(*size) for size in sizes]
        expected = processor(images=shown(name, images), text=[text], return_tensors="np")["input_ids"]
        pictures = reader.pictures(images)
        found = reader.prompt(text, pictures)
        assert found.ids == np.asarray(expected)[0].tolist()
        wanted = sum(FAMILIES[settings.family](settings).n_rows(each.grid) for each in pictures)
        assert int((found.media.places > 0).sum()) == wanted


@pytest.mark.parametrize("seen", ["lfm2_vl"], indirect=True)
def test_tiles_of_lfm2_have_tokens_for_their_places(seen):
    _, folder, _, reader = seen
    one = "".join(f"<|img_row_1_col_{column}|>{'<image>' * 4}" for column in (1, 2, 3)) + "<|img_thumbnail|>"
    text = f"a<|image_start|>{one}{'<image>' * 5}<|image_end|>b<|image_start|>{'<image>' * 4}<|image_end|>"
    found = reader.prompt("a<image>b<image>", reader.pictures([vision.picture(64, 200), vision.picture(40, 90)])).ids
    assert found == AutoTokenizer.from_pretrained(folder)(text)["input_ids"]


@pytest.mark.parametrize("seen", ["mistral3", "pixtral"], indirect=True)
def test_lines_of_pixtral_end_with_a_token(seen):
    _, folder, settings, reader = seen
    side = settings.tile[0]
    pictures = [vision.picture(40, 90), vision.picture(90, 33)]
    given = vision.processor(folder)(images=[Image.fromarray(each) for each in pictures], return_tensors="np")
    texts = [("[IMG]" * (width // side) + "[IMG_BREAK]") * (height // side) for height, width in given["image_sizes"]]
    one, two = (text.removesuffix("[IMG_BREAK]") + "[IMG_END]" for text in texts)
    found = reader.prompt("a[IMG]b[IMG]", reader.pictures(pictures)).ids
    assert found == AutoTokenizer.from_pretrained(folder)(f"a{one}b{two}")["input_ids"]


def test_a_placeholder_that_a_user_types_is_text(seen):
    _, folder, settings, _ = seen
    tokenizer, escaping = (Tokenizer(folder / "tokenizer.json", each) for each in ((), settings.placeholders))
    row = settings.row_token or settings.token
    typed = f"in {row} the {settings.token}"
    assert settings.token_id in tokenizer.encode(typed)
    ids = escaping.encode(typed)
    assert settings.token_id not in ids
    assert tokenizer.decode(ids) == typed
    plain = "in the self = the"
    assert escaping.encode(plain) == tokenizer.encode(plain)
    first, rest = settings.token[0], settings.token[1:]
    assert escaping.encode(settings.token * 3) == escaping.encode_parts([first, rest + first, rest + first, rest])


def test_pictures_and_placeholders_are_counted(seen):
    _, _, settings, reader = seen
    pictures, token = reader.pictures([vision.picture(40, 90), vision.picture(30, 33)]), settings.token
    first = reader.prompt("what", pictures)
    assert first.ids == reader.prompt(f"{2 * FAMILIES[settings.family](settings).alone}what", pictures).ids
    for text in (f"{token}what", f"{token}{token}{token}"):
        said = f"placeholders {re.escape(token)}: received {text.count(token)} in the prompt, expected 2, one for each"
        with pytest.raises(PromptError, match=said):
            reader.prompt(text, pictures)
    place, rows = first.ids.index(settings.token_id), first.ids.count(settings.token_id)
    with pytest.raises(PromptError, match=rf"the prompt has {rows - 1} placeholders of pictures .*, expected {rows}"):
        reader.of_ids(first.ids[:place] + first.ids[place + 1 :], pictures)
    with pytest.raises(PromptError, match="received 65 pictures, expected at most 64"):
        reader.pictures([vision.picture(3, 3)] * 65)


def test_chunks_end_around_rows_that_see_each_other(seen):
    _, _, settings, reader = seen
    pictures = reader.pictures([vision.picture(40, 90), vision.picture(90, 40)])
    found = reader.prompt("ab", pictures)
    media, length = found.media, len(found.ids)
    for size in (max(settings.tile_rows, 4), settings.tile_rows + 3, length):
        start, stops = 0, []
        while start < length:
            start = media.chunk_stop(start, min(start + size, length))
            stops.append(start)
        assert all(stop - begin <= size for begin, stop in zip([0, *stops], stops, strict=False))
        assert stops[-1] == length
        inside = [stop for stop in stops[:-1] if media.blocks[stop] and media.blocks[stop] == media.blocks[stop - 1]]
        assert not inside or not settings.both_ways
        assert settings.both_ways or stops == [*range(size, length, size), length]
    first, last = (int(each) for each in np.flatnonzero(media.blocks == 2)[[0, -1]])
    for place in range(first + 1, last + 1):
        assert media.reusable(place) == (first if settings.both_ways else place)
    assert [media.reusable(each) for each in (0, first, last + 1, length + 9)] == [0, first, last + 1, length + 9]
    assert media.chunk_stop(first, first + 2) == (last + 1 if settings.both_ways else first + 2), (
        "one that fills a chunk"
    )
    apart = [*found.ids[: first + 1], 9, *found.ids[first + 1 :]]
    if settings.both_ways or settings.axes:
        with pytest.raises(PromptError, match=r"tokens among the .* placeholders of picture 2, expected none"):
            reader.of_ids(apart, pictures)


def test_a_picture_is_told_by_its_content(seen):
    _, _, settings, reader = seen
    one, same, other = (reader.pictures([vision.picture(40, 90, seed)]) for seed in (0, 0, 1))
    first, again, differs = (reader.prompt("what is it", each).media.identity for each in (one, same, other))
    ids = reader.prompt("what is it", one).ids
    assert first == again
    place = ids.index(settings.token_id)
    assert first[:place] == differs[:place] == ids[:place]
    assert all(a != b for a, b, token in zip(first, differs, ids, strict=True) if token == settings.token_id)
    assert all(each < 0 for each, token in zip(first, ids, strict=True) if token == settings.token_id)
    assert len(set(first)) >= ids.count(settings.token_id)


def test_a_picture_is_told_by_more_than_the_first_byte_of_its_hash(seen):
    _, _, settings, reader = seen
    (picture,) = reader.pictures([vision.picture(40, 90)])
    ids, encoder = reader.prompt("what is it", [picture]).ids, fake_encoder(settings)
    keys = [bytes(7) + bytes([last]) + picture.key[8:] for last in (0, 1)]
    first, other = (SequenceMedia([replace(picture, key=key)], ids, encoder).identity for key in keys)
    assert all(a != b for a, b, token in zip(first, other, ids, strict=True) if token == settings.token_id)


@pytest.mark.parametrize("seen", ["qwen3_vl"], indirect=True)
def test_positions_behind_a_prompt_that_ends_with_a_picture_are_those_of_its_end(seen):
    _, _, settings, reader = seen
    pictures = reader.pictures([vision.picture(40, 90)])
    ids = reader.prompt("what is it", pictures).ids
    ends = [*ids[: len(ids) - ids[::-1].index(settings.token_id)]]
    media = reader.of_ids(ends, pictures).media
    behind = media.offsets_between(len(ends), len(ends) + 3)
    assert behind.shape == (3, 3)
    assert (behind == media.offset_behind).all()


def fake_encoder(settings: ImageSettings, limit: int = encoders.ENCODER_BYTES) -> Encoder:
    """Return an encoder whose rows are the numbers of its runs."""
    runs: list[int] = []

    def run(given: dict[str, np.ndarray]) -> np.ndarray:
        runs.append(1)
        count = settings.tile_rows + (settings.family == "llava_onevision")
        if PLACES in given:
            count = len(given[PLACES]) // settings.settings["merge"] ** 2
        return np.full((count, settings.width), len(runs), np.float32)

    return Encoder(FAMILIES[settings.family](settings), lambda: run, limit)


def test_rows_come_in_the_order_of_the_prompt_and_each_picture_is_encoded_once(seen):
    _, _, settings, reader = seen
    encoder, pictures = fake_encoder(settings), reader.pictures([vision.picture(90, 40), vision.picture(40, 90)])
    ids = reader.prompt("ab", pictures).ids
    media = SequenceMedia(pictures, ids, encoder)
    whole = media.rows_between(0, len(ids))[1]
    assert whole is not None
    family = encoder.family
    runs = [len(family.runs(each.image)) for each in pictures]
    tiles, rows = sum(runs), [family.n_rows(each.grid) for each in pictures]
    each = [count // of for count, of in zip(rows, runs, strict=True) for _ in range(of)]
    assert len(whole) == sum(rows)
    if settings.family != "llava_onevision":  # whose tiles' rows lie side by side
        assert np.array_equal(whole[:, 0], np.repeat(np.arange(1, tiles + 1), each))
    for size in (1, 3, 5):
        parts = [media.rows_between(start, start + size) for start in range(0, len(ids), size)]
        assert np.array_equal(np.concatenate([rows for _, rows in parts if rows is not None]), whole)
        assert sum(int((places > 0).sum()) for places, _ in parts) == len(whole)
    assert encoder.runs == tiles
    assert SequenceMedia(pictures, ids, encoder).rows_between(0, len(ids))[1] is not None
    assert encoder.runs == tiles  # kept


def test_a_picture_that_was_begun_and_is_held_by_a_slot_now_is_no_other_one(seen):
    encoder, pictures = fake_encoder(seen[2]), seen[3].pictures([vision.picture(90, 40), vision.picture(40, 90)])
    media = SequenceMedia(pictures, seen[3].prompt("ab", pictures).ids, encoder)
    go_on, start = threading.Event(), int(media.blocks.tolist().index(2))
    encoder.ahead.submit(go_on.wait, 60)
    assert not media.prepare(0, waits=False)
    go_on.set()
    assert any(media.prepare(start, waits=True) for _ in range(200))
    assert encoder.runs == sum(len(encoder.family.runs(each.image)) for each in pictures)  # none is left for a round


def test_kept_rows_have_a_limit(seen):
    _, _, settings, reader = seen
    pictures, family = reader.pictures([vision.picture(40, 90, seed) for seed in range(3)]), reader.encoder.family
    size = family.n_rows(pictures[0].grid) * settings.width * 4
    encoder, count = fake_encoder(settings, 2 * size), len(family.runs(pictures[0].image))
    for picture, runs in ((0, 1), (1, 2), (0, 2), (2, 3), (0, 3), (1, 4)):  # the least recently used one goes
        encoder.rows(pictures[picture])
        found = encoder.runs, encoder.queries - encoder.hits, encoder.kept_bytes
        assert found == (runs * count, runs, min(runs, 2) * size)


def test_settings_come_back_from_a_manifest(seen):
    assert ImageSettings.from_json(seen[2].to_json()) == seen[2]
    assert seen[2].describe().startswith(f"{seen[2].family}, {seen[2].tile_rows} tokens")


def test_a_checkpoint_without_its_processor_or_of_another_type_is_refused(tmp_path):
    folder = vision.save(vision.model("idefics3"), "idefics3", tmp_path / "a")
    (folder / "preprocessor_config.json").unlink()
    with pytest.raises(CheckpointError, match=r"received a folder without preprocessor_config\.json"):
        read_images(folder)
    other = multimodal.save(multimodal.model("gemma3n"), tmp_path / "b")
    with pytest.raises(UnsupportedModelError, match=r"received target\.images for a model of type 'gemma3n'"):
        read_images(other)
