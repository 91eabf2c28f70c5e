"""Samples of a WAV file: whole numbers of 8, 16, 24 or 32 bits and floats, of any number of channels."""

import struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from speccompile.errors import PromptError

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_CHUNK, _FORMAT = struct.Struct("<4sI"), struct.Struct("<HHIIHH")
_SUBFORMAT = 24
"""Place of the format's number in the chunk `fmt ` of the extensible form."""

MOST_SECONDS = 4 * 3600
"""Longest sound that is read."""
MOST_BYTES = 2**30
"""Largest file of a sound."""
LEAST_RATE, MOST_RATE = 1_000, 768_000
"""Lowest and highest rate of samples a second. A few kilobytes at one sample a second would be hours of sound."""

CONVERT = "convert it first: ffmpeg -i SOUND -ar 16000 -ac 1 SOUND.wav"
"""Hint about files of other forms."""


class Sound(NamedTuple):
    """Samples float32 [n] in [-1, 1], the mean of all channels, and their number a second."""

    samples: NDArray[np.float32]
    rate: int


def is_wav(data: bytes) -> bool:
    """Return whether a file's bytes begin as those of a WAV file."""
    return data[:4] == b"RIFF" and data[8:12] == b"WAVE"


def parse_wav(data: bytes, where: str) -> Sound:
    """Return the samples of a WAV file's bytes. where: its name in messages. Raise PromptError."""
    chunks = dict[bytes, bytes]()
    place = 12
    while place + _CHUNK.size <= len(data) and b"data" not in chunks:
        name, size = _CHUNK.unpack_from(data, place)
        chunks[name] = data[place + _CHUNK.size : place + _CHUNK.size + size]
        place += _CHUNK.size + size + size % 2
        found = len(chunks[name])
        if name == b"data" and found < size <= MOST_BYTES:  # who writes to a pipe states a size beyond all files
            raise PromptError(
                f"{where}: received {found} of {size} bytes of samples: it is cut off", hint="give a whole file"
            )
    form = chunks.get(b"fmt ", b"")
    if len(form) < _FORMAT.size:
        raise _damaged(where, f"its format has {len(form)} bytes, expected {_FORMAT.size} or more")
    if b"data" not in chunks:
        raise _damaged(where, f"none of its {len(data)} bytes are said to be samples")
    return _decode(form, chunks[b"data"], where)


def _damaged(where: str, problem: str) -> PromptError:
    return PromptError(f"{where}: the WAV file is damaged: {problem}", hint=CONVERT)


def check_length(start: bytes, size: int, where: str) -> None:
    """Raise PromptError for a WAV file of `size` bytes that is too long by what its first bytes say."""
    place, form = 12, b""
    while place + _CHUNK.size <= len(start):
        name, length = _CHUNK.unpack_from(start, place)
        place += _CHUNK.size
        if name == b"data" and len(form) >= _FORMAT.size:
            _, _, rate, _, block, _ = _FORMAT.unpack_from(form)
            samples = min(length, size - place) // max(1, block)
            if samples > MOST_SECONDS * rate > 0:
                raise too_long(where, samples / rate)
        form = start[place : place + length] if name == b"fmt " else form
        place += length + length % 2


def too_long(where: str, seconds: float) -> PromptError:
    """Return the error of a sound that is too long. The caller raises it."""
    return PromptError(
        f"{where}: received {seconds:.0f} s, expected at most {MOST_SECONDS} s", hint="cut it into pieces, in pauses"
    )


def _decode(form: bytes, data: bytes, where: str) -> Sound:
    kind, channels, rate, _, block, bits = _FORMAT.unpack_from(form)
    if kind == _EXTENSIBLE and len(form) >= _SUBFORMAT + 2:
        (kind,) = struct.unpack_from("<H", form, _SUBFORMAT)
    if kind not in (_PCM, _FLOAT):  # compressed ones have fewer bits than bytes hold, and are not damaged
        raise _other_form(where, kind, bits)
    if not LEAST_RATE <= rate <= MOST_RATE:
        raise _damaged(where, f"{rate} samples a second, expected {LEAST_RATE} to {MOST_RATE}")
    if not (channels and bits >= 8):
        raise _damaged(where, f"{channels} channels of {bits} bits, expected 1 or more, of 8 bits or more")
    if block != channels * (bits // 8):
        raise _damaged(
            where, f"{block} bytes for {channels} channels of {bits} bits, expected {channels * (bits // 8)}"
        )
    data = data[: len(data) // block * block]
    if len(data) / block / rate > MOST_SECONDS:
        raise too_long(where, len(data) / block / rate)
    values = _values(kind, bits, data, where)
    if not values.size:
        raise PromptError(f"{where}: the WAV file has no samples", hint="give a sound")
    with np.errstate(over="ignore", invalid="ignore"):
        samples = values.reshape(-1, channels).mean(1, dtype=np.float32)
    if not np.isfinite(samples).all():
        raise _damaged(where, "some samples are no finite numbers")
    return Sound(samples, rate)


def _values(kind: int, bits: int, data: bytes, where: str) -> NDArray[np.float32]:
    """Return the numbers of all channels in [-1, 1]. Raise PromptError for another form."""
    match kind, bits:
        case (1, 8):
            return (np.frombuffer(data, np.uint8).astype(np.float32) - 128.0) / 128.0
        case (1, 16 | 32):
            return np.frombuffer(data, f"<i{bits // 8}").astype(np.float32) / 2.0 ** (bits - 1)
        case (1, 24):
            return _wide(data).astype(np.float32) / 2.0**23
        case (3, 32 | 64):
            with np.errstate(over="ignore"):
                return np.frombuffer(data, f"<f{bits // 8}").astype(np.float32)
        case _:
            raise _other_form(where, kind, bits)


def _other_form(where: str, kind: int, bits: int) -> PromptError:
    return PromptError(
        f"{where}: received samples of format {kind} with {bits} bits, expected PCM of 8 to 32 bits or floats",
        hint=CONVERT,
    )


def _wide(data: bytes) -> NDArray[np.int32]:
    """Return numbers of 24 bits."""
    found = np.zeros((len(data) // 3, 4), np.uint8)
    found[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
    whole: NDArray[np.int32] = found.view("<i4")[:, 0] >> 8
    return whole
