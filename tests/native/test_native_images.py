"""Pictures in C++ against Python's, which tests/light compares with Pillow and transformers: bit for bit."""

import io
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from speccompile.bundle.media import PIXELS
from speccompile.compiler.checkpoints.images import read_images
from speccompile.errors import BundleError, EngineError, PromptError
from speccompile.machine.formats.image_settings import ImageSettings
from speccompile.runtime.images import limits, prompts
from speccompile.runtime.images.decode import read_picture
from speccompile.runtime.images.encoder import Encoder, Picture
from speccompile.runtime.images.families import FAMILIES
from speccompile.runtime.images.media import SequenceMedia
from speccompile.runtime.images.resize import FILTERS, resize
from tests import vision
from tests.native.bundle_lines import Lines, outcome
from tests.suite.selection import sweep_but

NAMES = ("idefics3", "internvl", "gemma3", "gemma4", "lfm2_vl", "llava", "llava_next", "llava_onevision", "mistral3",
         "pixtral", "qwen2_5_vl", "qwen3_vl")  # fmt: skip
SIZES = [(1, 1), (1, 40), (40, 1), (7, 300), (300, 7), (56, 56), (57, 56), (64, 200), (200, 64), (33, 30), (112, 113),
         (480, 640), (640, 480)]  # fmt: skip


class ImageLines(Lines):
    """native/tests/images.cpp: arrays go through files of a folder."""

    program = "image_lines"

    def __init__(self, build: Path, folder: Path) -> None:
        super().__init__(build)
        self._folder = folder

    def image(self, image: np.ndarray) -> list[Any]:
        path = self._folder / f"{len(list(self._folder.iterdir()))}.rgb"
        path.write_bytes(image.tobytes())
        return [str(path), *image.shape[:2]]

    def bytes_of(self, name: str, value: Any, **more: Any) -> tuple[Any, bytes]:
        """Return the answer, and what was written."""
        out = self._folder / "out"
        found = self.ask(name, value, out=str(out), **more)
        return found, out.read_bytes()


@pytest.fixture(scope="module")
def native(native_build: Path, tmp_path_factory: pytest.TempPathFactory):
    started = ImageLines(native_build, tmp_path_factory.mktemp("pictures"))
    yield started
    started.close()


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


def encoded(image: Image.Image, kind: str, **settings: Any) -> bytes:
    held = io.BytesIO()
    image.save(held, kind, **settings)
    return held.getvalue()


def turned(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def noted(*texts: tuple[str, str]) -> PngImagePlugin.PngInfo:
    notes = PngImagePlugin.PngInfo()
    for name, text in texts:
        notes.add_itxt(name, text)
    return notes


_SHOWN = Image.fromarray(vision.picture(20, 33))
_XMP = '<x:xmpmeta tiff:Orientation=... tiff:Orientation="6"/>'
_ALPHA = np.random.default_rng(0).integers(0, 256, (20, 33, 1), np.uint8)
_WIDE = np.arange(0, 65536, 97, np.uint16)[:600].reshape(20, 30)
FILES = {
    "PNG without its last chunk": encoded(Image.fromarray(vision.picture(9, 14)), "PNG")[:-12],
    "ppm": encoded(_SHOWN, "PPM"),
    "pgm": encoded(_SHOWN.convert("L"), "PPM"),
    "pgm of 16 bits": encoded(Image.fromarray(_WIDE), "PPM"),
    "ppm of 7 levels": b"P6 # a comment\n3 2\n7\n" + bytes(range(8)) + bytes(10),
    "ppm of 16 bits": b"P6 2 1 1000\n" + bytes([3, 232, 1, 0, 0, 255, 0, 1, 2, 2, 3, 1]),
    "png": encoded(_SHOWN, "PNG"),
    "png with alpha": encoded(Image.fromarray(np.concatenate([np.asarray(_SHOWN), _ALPHA], 2)), "PNG"),
    "png of a palette": encoded(_SHOWN.quantize(16), "PNG"),
    "png of a palette with a hole": encoded(_SHOWN.quantize(16), "PNG", transparency=3),
    "grey png": encoded(_SHOWN.convert("L"), "PNG"),
    "grey png with alpha": encoded(_SHOWN.convert("LA"), "PNG"),
    "png of 1 bit": encoded(_SHOWN.convert("1"), "PNG"),
    "png of 16 bits": encoded(Image.fromarray(_WIDE), "PNG"),
    "png of 16 bits with a hole": encoded(Image.fromarray(_WIDE), "PNG", transparency=int(_WIDE[2, 3])),
    "grey jpeg": encoded(_SHOWN.convert("L"), "JPEG"),
    "several pictures in one jpeg": encoded(
        _SHOWN.convert("L"), "MPO", save_all=True, append_images=[_SHOWN.resize((5, 5))]
    ),
    "turned by xmp": encoded(_SHOWN, "PNG", pnginfo=noted(("Title", _XMP), ("XML:com.adobe.xmp", _XMP))),
    "turned by elements of xmp in a jpeg": encoded(
        _SHOWN.convert("L"), "JPEG", xmp=b"<tiff:Orientation>8</tiff:Orientation>", exif=Image.Exif()
    ),
    "exif before xmp": encoded(_SHOWN.convert("L"), "JPEG", xmp=_XMP.encode(), exif=turned(3)),
    "an orientation of 32 bits": encoded(_SHOWN, "PNG", exif=b"MM\0*\0\0\0\x08\0\1\1\x12\0\4\0\0\0\1\0\0\0\5\0\0\0\0"),
    "exif that is none": encoded(_SHOWN, "PNG", exif=b"II+\0 something else"),
    "exif without its end": encoded(_SHOWN.convert("L"), "JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\x09\1"),
    **{f"turned {number}": encoded(_SHOWN, "PNG", exif=turned(number)) for number in range(1, 9)},
}


STARTS = {"PNG": b"\x89PNG", "JPEG": b"\xff\xd8"}


def lacks(native: ImageLines, data: bytes, folder: Path) -> str:
    """Return why a file cannot be decoded here at all: the runtime was compiled without its library; "" if it can."""
    form = next((name for name, start in STARTS.items() if data.startswith(start)), None)
    if form is None:
        return ""
    path = folder / "whole"
    path.write_bytes(encoded(_SHOWN, form))
    try:
        native.bytes_of("decode", str(path))
    except EngineError as error:
        return str(error)
    return ""


def skip_without_library(native: ImageLines, data: bytes, folder: Path) -> None:
    if reason := lacks(native, data, folder):
        pytest.skip(reason)


@pytest.mark.parametrize("name", FILES)
def test_files_are_decoded_as_by_pillow(native: ImageLines, name: str, tmp_path: Path) -> None:
    skip_without_library(native, FILES[name], tmp_path)
    path = tmp_path / "picture"
    path.write_bytes(FILES[name])
    expected = read_picture(path)
    shape, found = native.bytes_of("decode", str(path))
    assert (shape, found) == (list(expected.shape[:2]), expected.tobytes())


@pytest.mark.parametrize("settings_", [{}, {"subsampling": 2}, {"progressive": True}, {"exif": turned(6)}])
def test_jpeg_is_decoded_nearly_as_by_pillow(native: ImageLines, settings_: dict[str, Any], tmp_path: Path) -> None:
    """Pillow brings a libjpeg of its own, whose last bits may differ from the system's."""
    skip_without_library(native, STARTS["JPEG"], tmp_path)
    path = tmp_path / "picture.jpg"
    path.write_bytes(encoded(Image.fromarray(vision.picture(64, 90)), "JPEG", quality=90, **settings_))
    expected = read_picture(path)
    shape, found = native.bytes_of("decode", str(path))
    assert shape == list(expected.shape[:2])
    away = np.abs(np.frombuffer(found, np.uint8).astype(int) - expected.reshape(-1))
    assert away.max() <= 4


def animation() -> bytes:
    frames = [Image.fromarray(vision.picture(8, 8, seed)) for seed in range(3)]
    return encoded(frames[0], "PNG", save_all=True, append_images=frames[1:])


def bomb() -> bytes:
    """Return a small PNG whose header names a huge size."""
    held = io.BytesIO(b"")
    header = (60_000).to_bytes(4, "big") * 2 + bytes([8, 2, 0, 0, 0])
    held.write(b"\x89PNG\r\n\x1a\n")
    PngImagePlugin.putchunk(held, b"IHDR", header)
    return held.getvalue()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "received an empty file"),
        (b"GIF89a", "it is none of PNG, JPEG and PPM"),
        (encoded(_SHOWN, "PNG")[:300], "the picture cannot be decoded"),
        (encoded(_SHOWN, "PNG")[:20], "it has no header"),
        (encoded(_SHOWN, "PNG")[:60] + bytes(40) + encoded(_SHOWN, "PNG")[100:], "the picture cannot be decoded"),
        (encoded(_SHOWN, "JPEG")[:400], "the picture cannot be decoded"),
        (b"\xff\xd8\xff", "the picture cannot be decoded"),
        (encoded(_SHOWN.convert("CMYK"), "JPEG"), r"it has 4 channels \(CMYK\)"),
        (encoded(_SHOWN, "PPM")[:-1], "it has 1979 bytes of pixels, expected 1980"),
        (b"P6 3 x 255\n", "its header has no number at byte 5"),
        (b"P6 3 3 70000\n", "its largest value is 70000"),
        (b"P6 0 3 255\n", "received a picture of 0 x 3 pixels, expected at least 1 x 1"),
        (b"P6 9999999999 9999999999 255\n", "received a picture of 9999999999 x 9999999999 pixels, expected at most"),
        (b"P6", "its header has no number"),
        (bomb(), "received a picture of 60000 x 60000 pixels, expected at most 64000000 pixels"),
        (animation(), "received an animation of 3 pictures"),
    ],
)
def test_what_is_no_picture_is_refused(native: ImageLines, data: bytes, said: str, tmp_path: Path) -> None:
    skip_without_library(native, data, tmp_path)
    path = tmp_path / "picture"
    path.write_bytes(data)
    with pytest.raises(PromptError, match=said) as caught:
        native.bytes_of("decode", str(path))
    assert str(caught.value).startswith(f"image {path}")
    assert caught.value.hint


def decode_changed(native: ImageLines, folder: Path, count: int) -> int:
    """Decode each of FILES with some bytes changed at random, `count` times, and return how many were decoded. The
    others are refused; a decoder that ends the program is an error."""
    random, path, decoded = np.random.default_rng(0), folder / "changed", 0
    for name, data in FILES.items():
        for _ in range(0 if lacks(native, data, folder) else count):
            changed = np.frombuffer(data, np.uint8).copy()
            places = random.integers(0, len(changed), random.integers(1, 6))
            changed[places] = random.integers(0, 256, len(places))
            end = random.integers(1, len(changed)) if random.integers(2) else len(changed)
            path.write_bytes(changed[:end].tobytes())
            found = outcome(partial(native.bytes_of, "decode", str(path)))
            assert len(found) == 1 or (found[0] == "PromptError" and f"image {path}: " in found[1]), name
            decoded += len(found) == 1
    return decoded


def test_damaged_files_are_decoded_or_refused(native: ImageLines, tmp_path: Path) -> None:
    assert decode_changed(native, tmp_path, 5) > 0


def test_files_that_cannot_be_read_are_refused(native: ImageLines, tmp_path: Path) -> None:
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(limits.MAX_BYTES + 1)
    for path in (tmp_path / "none", tmp_path, large):
        with pytest.raises(PromptError, match=f"image {path}: "):
            native.bytes_of("decode", str(path))


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
