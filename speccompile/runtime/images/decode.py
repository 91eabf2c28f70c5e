"""Files and arrays as pictures: uint8 [height, width, 3], in RGB.

The camera's orientation (EXIF) is applied; transparent pixels are laid on white; palettes and grey become RGB; 16 bits
a channel are cut to the upper 8; an animation is refused, as it is more than one picture. Of the pictures that a camera
writes into one JPEG (MPO) the first is taken: the others are previews of it, or the same seen by another lens.
"""

import re
import sys
import warnings
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from speccompile.errors import PromptError
from speccompile.extras import naming_extra
from speccompile.machine.plain_files import read_plain
from speccompile.runtime.images.limits import MAX_BYTES, MAX_PIXELS, MAX_SCANS, MAX_SIDE
from speccompile.runtime.images.resize import Pixels

if TYPE_CHECKING:
    from collections.abc import Callable

    from PIL.Image import Image

_STILL = (b"avif", b"avis", b"heic", b"heim", b"heis", b"heix", b"hevc", b"hevx", b"mif1", b"msf1")
"""Brands of pictures in the container of MP4: HEIF and AVIF."""
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
"""Formats that are decoded: Pillow's other decoders are seldom tested against damaged files."""
_MARKER = re.compile(rb"\xff[^\x00\x01\xd0-\xd8\xff]")
"""Begin of a segment of JPEG, or of what follows the numbers of a scan."""
_END, _SCAN = 0xD9, 0xDA
_ORIENTATION = 0x0112
"""Number of EXIF's tag."""
_GREY_16 = ("I;16", "I;16L", "I;16B", "I;16N")
_SCALED_TO_16 = ("PNG", "PPM")
"""Formats of which Pillow's mode I holds 16 bits, not 32."""


def read_picture(source: Any, where: str = "image") -> Pixels:
    """Return the pixels of a picture: the path of a file, the bytes of one, uint8 [height, width], [.., 1], [.., 3] or
    [.., 4], or a picture of Pillow. where: its name in messages. Raise PromptError for a file that cannot be read or
    decoded, an array of another kind, and beyond the limits; MissingPackageError for a file without
    Pillow."""
    if isinstance(source, np.ndarray):
        return _of_array(source, where)
    if is_pillow(source):
        return _decoded(lambda: source, where)
    if isinstance(source, str | Path):
        where = f"{where} {source}"
        source = _read(Path(source), where)
    if not isinstance(source, bytes | bytearray | memoryview):
        raise PromptError(
            f"{where}: received {type(source).__name__}, expected a path, the bytes of a file, an array of uint8 or a "
            "picture of Pillow",
            hint="give the file as it is",
        )
    return _decode(bytes(source), where)


def is_pillow(source: object) -> bool:
    """Return whether an object is a picture of Pillow, which is not imported for that."""
    pillow = sys.modules.get("PIL.Image")
    return pillow is not None and isinstance(source, pillow.Image)


def _read(path: Path, where: str) -> bytes:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise _too_large(where, path.stat().st_size)
        return read_plain(path)
    except OSError as error:
        raise PromptError(f"{where}: {error.strerror}", hint="give a file that can be read") from error


def _too_large(where: str, size: int) -> PromptError:
    return PromptError(f"{where}: received {size} bytes, expected at most {MAX_BYTES}", hint="give a smaller picture")


def _of_array(array: np.ndarray[Any, Any], where: str) -> Pixels:
    shape = f"{array.dtype} {list(array.shape)}"
    channels = array.shape[2] if array.ndim == 3 else 1
    if array.dtype != np.uint8 or array.ndim not in (2, 3) or channels not in (1, 3, 4) or not array.size:
        raise PromptError(
            f"{where}: received an array {shape}, expected uint8 [height, width, 3]",
            hint="channels come last, and values from 0 to 255",
        )
    _check_size(array.shape[1], array.shape[0], where)
    array = array.reshape(*array.shape[:2], channels)
    if channels == 4:
        array = _on_white(array)
    return np.ascontiguousarray(np.broadcast_to(array, (*array.shape[:2], 3)))


def _on_white(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    with naming_extra("a picture with transparency"):
        from PIL import Image
    return np.asarray(_flattened(Image.fromarray(array)))


def _flattened(image: "Image") -> "Image":
    """Return an RGB picture, transparent pixels on white."""
    from PIL import Image

    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, (255, 255, 255, 255)), image).convert("RGB")
    return image.convert("RGB")


def _decode(data: bytes, where: str) -> Pixels:
    if len(data) > MAX_BYTES:
        raise _too_large(where, len(data))
    if not data:
        raise PromptError(f"{where}: received an empty file, expected a picture", hint=_hint())
    if _is_video(data):
        raise PromptError(f"{where}: received a video, expected one picture", hint="save the pictures that you mean")
    if data.startswith(b"\xff\xd8\xff") and _count_scans(data) > MAX_SCANS:
        raise PromptError(
            f"{where}: received a JPEG file of more than {MAX_SCANS} scans, expected at most {MAX_SCANS}",
            hint="save it again",
        )
    with naming_extra("a picture in a file"):
        from PIL import Image
    return _decoded(lambda: Image.open(BytesIO(data), formats=FORMATS), where)


def _count_scans(data: bytes) -> int:
    """Return the scans of a JPEG file's first picture, MAX_SCANS + 1 for more than may be."""
    found = at = 0
    while found <= MAX_SCANS and (marker := _MARKER.search(data, at)) is not None:
        kind, at = data[marker.start() + 1], marker.end()
        if kind == _END:
            break
        found += kind == _SCAN
        at += int.from_bytes(data[at : at + 2], "big")
    return found


def _decoded(opened: "Callable[[], Image]", where: str) -> Pixels:
    """Return the pixels of a picture of Pillow, whose size is checked before they are decoded."""
    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # sizes are checked here, and damaged metadata changes no pixel
            image = opened()
            _check_size(*image.size, where)
            _check_still(image, where)
            _check_bits(image, where)
            image.load()
            return np.array(_flattened(_of_8_bits(_turned(image))), np.uint8)
    except (PromptError, MemoryError):  # the picture may be whole: who limits memory says how much it was
        raise
    except Image.DecompressionBombError:  # Pillow refuses it before it tells the size
        raise _too_many_pixels(f"more than {MAX_PIXELS}", where) from None
    except UnidentifiedImageError:  # whose message names an object of Python's
        raise PromptError(f"{where}: the picture cannot be decoded: its format is unknown", hint=_hint()) from None
    except Exception as error:  # noqa: BLE001 -- decoders of damaged files may raise anything
        raise PromptError(f"{where}: the picture cannot be decoded: {_first_line(error)}", hint=_hint()) from None


def _turned(image: "Image") -> "Image":
    """Return a picture as its camera was held: by EXIF, else XMP. What cannot be read of them turns nothing."""
    from PIL.Image import Transpose

    turns = dict(zip(range(2, 9), (
        Transpose.FLIP_LEFT_RIGHT, Transpose.ROTATE_180, Transpose.FLIP_TOP_BOTTOM, Transpose.TRANSPOSE,
        Transpose.ROTATE_270, Transpose.TRANSVERSE, Transpose.ROTATE_90,
    ), strict=True))  # fmt: skip
    try:
        turn = turns.get(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # noqa: BLE001 -- damaged metadata may raise anything, and changes no pixel
        return image
    return image if turn is None else image.transpose(turn)


def _of_8_bits(image: "Image") -> "Image":
    """Return a grey picture of 16 bits with the upper 8 of each; any other as it is."""
    from PIL import Image

    if image.mode not in (*_GREY_16, "I"):
        return image
    wide = np.asarray(image).astype(np.int64).clip(0, 0xFFFF)
    found = Image.fromarray((wide >> 8).astype(np.uint8))
    if isinstance(hole := image.info.get("transparency"), int):  # one of 65,536 greys
        found.putalpha(Image.fromarray(np.where(wide == hole, 0, 255).astype(np.uint8)))
    return found


def _check_still(image: "Image", where: str) -> None:
    if (frames := getattr(image, "n_frames", 1)) > 1 and image.format != "MPO":
        raise PromptError(
            f"{where}: received an animation of {frames} pictures, expected one picture",
            hint="save the picture that you mean",
        )


def _check_bits(image: "Image", where: str) -> None:
    """Raise PromptError for pixels of 32 bits: nothing says which value is white."""
    if image.mode == "F" or (image.mode == "I" and image.format not in _SCALED_TO_16):
        kind = "floating-point numbers" if image.mode == "F" else "integers of 32 bits"
        raise PromptError(
            f"{where}: received pixels that are {kind}, expected 8 or 16 bits a channel",
            hint="scale them to 0 to 255, and save the picture with 8 bits",
        )


def _check_size(width: int, height: int, where: str) -> None:
    if width * height > MAX_PIXELS or max(width, height) > MAX_SIDE:
        raise _too_many_pixels(f"{width} x {height}", where)


def _too_many_pixels(size: str, where: str) -> PromptError:
    return PromptError(
        f"{where}: received a picture of {size} pixels, expected at most {MAX_PIXELS} pixels and sides of at most "
        f"{MAX_SIDE}",
        hint="give a smaller picture",
    )


def _is_video(data: bytes) -> bool:
    """Return whether a file is a video: MP4 and QuickTime, but for pictures in their container, Matroska, or AVI."""
    if data[4:8] == b"ftyp":
        return data[8:12] not in _STILL
    return data.startswith(b"\x1a\x45\xdf\xa3") or (data.startswith(b"RIFF") and data[8:12] == b"AVI ")


def _hint() -> str:
    return f"give a whole file in one of the formats {', '.join(FORMATS)}"


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
