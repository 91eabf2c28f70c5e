"""Files of pictures in C++ against Pillow: decoded to the same bits, or refused."""

import io
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from speccompile.errors import EngineError, PromptError
from speccompile.runtime.images import limits
from speccompile.runtime.images.decode import read_picture
from tests import vision
from tests.light.test_images_files import scans
from tests.native.bundle_lines import outcome
from tests.native.image_lines import ImageLines, native

__all__ = ["native"]  # a fixture


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


VIDEOS = {
    **dict.fromkeys(
        (b"\0\0\0\x20ftypisom", b"\x1aE\xdf\xa3", b"RIFF\0\0\0\0AVI LIST"), "received a video, expected one"
    ),
    **dict.fromkeys((b"\0\0\0\x20ftypheic", b"RIFF\0\0\0\0WAVE"), "it is none of PNG, JPEG and PPM"),
}
"""Beginnings of files, as tests/light/test_images_files.py has them."""


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
        *((begin + bytes(100), said) for begin, said in VIDEOS.items()),
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


def test_scans_of_a_jpeg_file_are_limited(native: ImageLines, tmp_path: Path) -> None:
    skip_without_library(native, STARTS["JPEG"], tmp_path)
    path = tmp_path / "scans.jpg"
    path.write_bytes(scans(limits.MAX_SCANS))
    assert native.bytes_of("decode", str(path))[0] == [20, 20]
    path.write_bytes(scans(limits.MAX_SCANS + 1))
    with pytest.raises(PromptError, match="received a JPEG file of more than 100 scans, expected at most 100"):
        native.bytes_of("decode", str(path))


def test_texts_in_a_picture_take_no_memory(native: ImageLines, tmp_path: Path) -> None:
    """Try 400 KB whose texts would have 400 MB, and a text that is said to have a gigabyte."""
    skip_without_library(native, STARTS["PNG"], tmp_path)
    start, rest = FILES["png"][:33], FILES["png"][33:]
    held, path = io.BytesIO(), tmp_path / "texts.png"
    for _ in range(50):
        PngImagePlugin.putchunk(held, b"zTXt", b"Comment\0\0" + zlib.compress(bytes(8 << 20)))
    path.write_bytes(start + held.getvalue() + rest)
    assert native.bytes_of("decode", str(path))[1] == read_picture(FILES["png"]).tobytes()
    path.write_bytes(start + (1 << 30).to_bytes(4, "big") + b"iTXt" + rest)
    with pytest.raises(PromptError, match="the picture cannot be decoded"):
        native.bytes_of("decode", str(path))
    assert native.peak_memory() < 100 << 20


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
