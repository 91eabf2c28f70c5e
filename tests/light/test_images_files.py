"""Pictures from files and arrays, and their resizing, against Pillow and transformers."""

import re
from io import BytesIO
from pathlib import Path
from runpy import run_path
from zlib import crc32

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngImageFile
from transformers.image_transforms import convert_to_rgb
from transformers.image_utils import load_image

from speccompile.bundle.prompts import read_questions
from speccompile.errors import PromptError
from speccompile.runtime.images import decode, limits
from speccompile.runtime.images.decode import read_picture
from speccompile.runtime.images.reader import images_per_prompt
from speccompile.runtime.images.resize import FILTERS, resize
from tests import vision

EXAMPLE = Path(__file__).resolve().parents[2] / "scripts/examples/pictures.py"

PILLOW = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC,
          "lanczos": Image.Resampling.LANCZOS}  # fmt: skip


def encoded(image: Image.Image, kind: str = "PNG", **settings: object) -> bytes:
    held = BytesIO()
    image.save(held, kind, **settings)
    return held.getvalue()


@pytest.mark.parametrize("name", FILTERS)
def test_resizing_is_pillows_width_first_bit_for_bit(name):
    random = np.random.default_rng(0)
    sizes = [[int(2 ** random.uniform(0, 8)) for _ in range(4)] for _ in range(60)]
    for height, width, high, wide in [[1, 1, 9, 4], [5, 7, 5, 7], [255, 3, 2, 200], *sizes]:
        image = random.integers(0, 256, (height, width, 3), np.uint8)
        expected = Image.fromarray(image).resize((wide, height), PILLOW[name]).resize((wide, high), PILLOW[name])
        assert np.array_equal(resize(image, high, wide, name), np.asarray(expected)), (height, width, high, wide)


def test_a_file_a_path_its_bytes_and_an_array_are_one_picture(tmp_path):
    image = vision.picture(40, 90)
    path = tmp_path / "a.png"
    path.write_bytes(encoded(Image.fromarray(image)))
    for source in (image, path, str(path), path.read_bytes(), bytearray(path.read_bytes())):
        assert np.array_equal(read_picture(source), image)


def test_the_cameras_orientation_is_applied_as_transformers_does(tmp_path):
    path, exif = tmp_path / "turned.jpg", Image.Exif()
    exif[0x0112] = 6  # a quarter to the right
    path.write_bytes(encoded(Image.fromarray(vision.picture(40, 90)), "JPEG", exif=exif))
    found = read_picture(path)
    assert found.shape == (90, 40, 3)
    assert np.array_equal(found, np.asarray(load_image(str(path))))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_damaged_metadata_changes_no_pixel(kind: str) -> None:
    shown = Image.fromarray(vision.picture(20, 30))
    for exif in (b"Exif\0\0no header of TIFF", b"Exif\0\0MM\0*\0\0\0\x08\0\x09\1"):
        assert np.array_equal(read_picture(encoded(shown, kind, exif=exif)), read_picture(encoded(shown, kind)))


@pytest.mark.parametrize(
    ("begin", "said"),
    [(b"\0\0\0\x20ftypisom", "received a video"), (b"\0\0\0\x14ftypqt  ", "received a video"),
     (b"\x1aE\xdf\xa3", "received a video"), (b"RIFF\0\0\0\0AVI LIST", "received a video"),
     (b"\0\0\0\x20ftypheic", "its format is unknown"), (b"RIFF\0\0\0\0WAVE", "its format is unknown")],
)  # fmt: skip
def test_a_video_is_refused_by_name(begin: bytes, said: str) -> None:
    with pytest.raises(PromptError, match=said):
        read_picture(begin + bytes(100))


def test_transparency_is_laid_on_white_as_transformers_does():
    alpha = np.random.default_rng(0).integers(0, 256, (9, 7, 1), np.uint8)
    image = np.concatenate([vision.picture(9, 7), alpha], 2)
    expected = convert_to_rgb(Image.fromarray(image), return_numpy=True)
    assert np.array_equal(read_picture(image), expected)
    assert np.array_equal(read_picture(encoded(Image.fromarray(image))), expected)


def test_palettes_and_grey_become_rgb():
    palette = Image.fromarray(vision.picture(20, 30)).quantize(16)
    assert np.array_equal(read_picture(encoded(palette)), np.asarray(palette.convert("RGB")))
    grey = vision.picture(20, 30)[..., 0]
    for source in (grey, grey[..., None], encoded(Image.fromarray(grey))):
        assert np.array_equal(read_picture(source), np.repeat(grey[..., None], 3, 2))


def test_sixteen_bits_are_cut_to_the_upper_eight():
    wide = np.arange(0, 65536, 97, np.uint16)[:600].reshape(20, 30)
    found = read_picture(encoded(Image.fromarray(wide)))
    assert np.array_equal(found[..., 0], (wide >> 8).astype(np.uint8))
    pierced = read_picture(encoded(Image.fromarray(wide), transparency=int(wide[2, 3])))
    assert np.array_equal(pierced[2, 3], [255] * 3)  # and no neighbour with the same upper 8 bits
    assert np.array_equal(np.argwhere((pierced != found).any(2)), [[2, 3]])


@pytest.mark.parametrize(("mode", "said"), [("F", "floating-point numbers"), ("I", "integers of 32 bits")])
def test_pixels_of_32_bits_are_refused(mode, said):
    image = Image.fromarray(vision.picture(4, 5)).convert(mode)
    for source in (image, encoded(image, "TIFF")):
        with pytest.raises(PromptError, match=f"received pixels that are {said}, expected 8 or 16 bits a channel"):
            read_picture(source)


def test_of_several_pictures_in_one_jpeg_the_first_is_taken():
    image, preview = (Image.fromarray(vision.picture(*size)) for size in ((40, 90), (20, 45)))
    data = encoded(image, "MPO", save_all=True, append_images=[preview])
    assert np.array_equal(read_picture(data), np.asarray(Image.open(BytesIO(data)).convert("RGB")))


def test_pictures_of_pillow_are_those_of_their_files():
    exif = Image.Exif()
    exif[0x0112] = 6
    shown = Image.fromarray(vision.picture(20, 30))
    for data in (encoded(shown.quantize(16), transparency=3), encoded(shown, "JPEG", exif=exif), encoded(shown)):
        assert np.array_equal(read_picture(Image.open(BytesIO(data))), read_picture(data))
    assert images_per_prompt(shown, 1) == [[shown]]


def test_an_animation_is_refused():
    frames = [Image.fromarray(vision.picture(8, 8, seed)) for seed in range(3)]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    with pytest.raises(PromptError, match="received an animation of 3 pictures, expected one picture"):
        read_picture(data)


def test_a_file_that_names_a_huge_size_is_refused_before_it_is_decoded(monkeypatch):
    small, wide = encoded(Image.new("RGB", (9, 9))), encoded(Image.new("1", (limits.MAX_SIDE + 1, 1)))
    monkeypatch.setattr(PngImageFile, "load", lambda self: pytest.fail("it was decoded"))
    for side in (9000, 60000):
        header = b"IHDR" + side.to_bytes(4, "big") * 2 + small[24:29]
        bomb = small[:12] + header + crc32(header).to_bytes(4, "big") + small[33:]
        shown = f"{side} x {side}" if side < 10000 else "more than 64000000"  # Pillow refuses it first
        with pytest.raises(PromptError, match=f"received a picture of {shown} pixels, expected at most 64000000"):
            read_picture(bomb)
    with pytest.raises(PromptError, match=f"received a picture of {limits.MAX_SIDE + 1} x 1 pixels, expected at most"):
        read_picture(wide)


def scans(count: int) -> bytes:
    """Return a progressive JPEG with some scans, of which the last ones are the same again and again."""
    data = encoded(Image.new("L", (20, 20)), "JPEG", progressive=True)
    last, end = data.rindex(b"\xff\xda"), data.rindex(b"\xff\xd9")
    return data[:end] + data[last:end] * (count - data.count(b"\xff\xda")) + data[end:]


def test_scans_of_a_jpeg_file_are_limited():
    preview = Image.Exif()
    preview[0x9286] = scans(limits.MAX_SCANS)  # a comment, which is no part of the picture
    beside = encoded(Image.new("L", (20, 20)), "JPEG", progressive=True, exif=preview)
    for data in (scans(limits.MAX_SCANS), beside):
        assert read_picture(data).shape == (20, 20, 3)
    with pytest.raises(PromptError, match="received a JPEG file of more than 100 scans, expected at most 100"):
        read_picture(scans(limits.MAX_SCANS + 1))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (b"", "received an empty file"),
        (b"GIF89a", "the picture cannot be decoded"),
        (b"not a picture at all", "the picture cannot be decoded: its format is unknown$"),
        (encoded(Image.new("RGB", (50, 50)))[:60], "the picture cannot be decoded"),
        (encoded(Image.new("RGB", (9, 9)), "PDF"), "the picture cannot be decoded"),
        (np.zeros((4, 4, 3), np.float32), r"received an array float32 \[4, 4, 3\], expected uint8"),
        (np.zeros((4, 4, 2), np.uint8), "received an array uint8"),
        (np.zeros((0, 4, 3), np.uint8), "received an array uint8"),
        (np.zeros((1, 1, 4, 3), np.uint8), "received an array uint8"),
        (7, "received int, expected a path"),
        ("no/such.png", "No such file"),
        (".", "Is a directory|expected a file|not a regular file"),
    ],
)
def test_what_is_no_picture_is_refused(source, said):
    with pytest.raises(PromptError, match=said) as caught:
        read_picture(source, "images[3]")
    assert str(caught.value).startswith("images[3]")
    assert caught.value.hint


def test_a_want_of_memory_is_no_damage_of_a_picture(monkeypatch):
    def lacking(image: PngImageFile) -> None:
        raise MemoryError

    data = encoded(Image.new("RGB", (9, 9)))
    monkeypatch.setattr(PngImageFile, "load", lacking)
    with pytest.raises(MemoryError):
        read_picture(data)


def test_too_many_bytes_are_refused_before_they_are_read(monkeypatch, tmp_path):
    monkeypatch.setattr(decode, "MAX_BYTES", 10)
    path = tmp_path / "large.png"
    path.write_bytes(b"0123456789a")
    for source in (path, path.read_bytes()):
        with pytest.raises(PromptError, match=re.escape("received 11 bytes, expected at most 10")):
            read_picture(source)


def test_pictures_of_the_example_are_prompts_of_bench(tmp_path):
    run_path(str(EXAMPLE), {"__name__": "pictures"})["write"](tmp_path, 7, "<image>")
    questions = read_questions(tmp_path / "prompts.jsonl")
    assert [read_picture(*each.images).shape[2] for each in questions] == [3] * 7
    assert {each.turns[0] for each in questions} == {f"<image>{asked}" for asked in (
        "What does this chart show?", "What is written here?", "What is on this picture?")}  # fmt: skip
