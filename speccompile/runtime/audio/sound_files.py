"""Samples of a sound's file: WAV here, other formats by the optional package soundfile (libsndfile)."""

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from speccompile.errors import PromptError
from speccompile.extras import missing_package
from speccompile.runtime.audio.wav import (
    CONVERT,
    LEAST_RATE,
    MOST_BYTES,
    MOST_RATE,
    MOST_SECONDS,
    Sound,
    check_length,
    is_wav,
    parse_wav,
    too_long,
)

MOST_SAMPLES = MOST_SECONDS * 48_000
"""Most samples of a channel that are decoded: a small file may hold very many."""

_START = 1 << 16
"""Bytes of a WAV file that say how long it is, before the rest is read."""
_AT_ONCE = 1 << 20
"""Samples of a channel that are decoded together."""

_STARTS = {b"fLaC": "FLAC", b"OggS": "Ogg", b"ID3": "MP3"}
_OTHERS = {b"\x1aE\xdf\xa3": "WebM or Matroska", b"FORM": "AIFF"}


def read_sound(path: Path) -> Sound:
    """Return the samples of a file. Raise PromptError for one that cannot be read, as `parse_sound` does."""
    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise PromptError(f"{path}: larger than {MOST_BYTES} bytes", hint="cut it into pieces")
        with path.open("rb") as file:
            start = file.read(_START)
            if is_wav(start):
                check_length(start, size, str(path))
            data = start + file.read()
    except OSError as error:
        raise PromptError(f"{path}: cannot be read: {error.strerror or error}", hint="check the path") from error
    return parse_sound(data, str(path))


def parse_sound(data: bytes, where: str) -> Sound:
    """Return the samples of a file's bytes. where: its name in messages. Raise PromptError for a file that is no sound,
    of another format, damaged or too long; MissingPackageError for one of another format than WAV without soundfile."""
    if is_wav(data):
        return parse_wav(data, where)
    form = _format(data)
    if form is None:
        raise PromptError(f"{where}: expected a WAV, FLAC, Ogg or MP3 file, got {_kind(data)}", hint=CONVERT)
    return _decode(data, form, where)


def _format(data: bytes) -> str | None:
    """Return the format of a file that soundfile decodes, None for another one."""
    if len(data) > 1 and data[0] == 0xFF and data[1] & 0xE6 == 0xE2:  # a frame of layer III
        return "MP3"
    return next((name for start, name in _STARTS.items() if data.startswith(start)), None)


def _kind(data: bytes) -> str:
    """Return what a file of another format seems to be."""
    if not data:
        return "an empty file"
    if data[4:8] == b"ftyp":
        return "an MP4 or M4A file"
    found = next((name for start, name in _OTHERS.items() if data.startswith(start)), None)
    return f"a file that begins with {data[:4]!r}" if found is None else found


def _decode(data: bytes, form: str, where: str) -> Sound:
    soundfile = _package(form)
    try:
        with soundfile.SoundFile(BytesIO(data)) as opened:
            count, rate = int(opened.frames), int(opened.samplerate)
            if not LEAST_RATE <= rate <= MOST_RATE:
                raise _damaged(where, form, f"{rate} samples a second")
            _check_length(count, rate, where)
            values = np.concatenate([np.zeros(0, np.float32), *_means(opened, rate, where)])
    except soundfile.SoundFileError as error:
        raise _damaged(where, form, str(getattr(error, "error_string", error)).removeprefix("Error : ")[:160]) from None
    if not values.size or len(values) < count:
        raise _damaged(where, form, f"{len(values)} of {count} samples can be decoded")
    if not np.isfinite(values).all():
        raise _damaged(where, form, "some samples are no finite numbers")
    return Sound(values, rate)


def _means(opened: Any, rate: int, where: str) -> Iterator[NDArray[np.float32]]:
    """Yield the mean of all channels, part by part. Raise PromptError once there are too many: a header may lie."""
    count = 0
    while len(part := opened.read(_AT_ONCE, dtype="float32", always_2d=True)):
        _check_length(count := count + len(part), rate, where)
        yield part.mean(1, dtype=np.float32)


def _check_length(count: int, rate: int, where: str) -> None:
    if count > MOST_SECONDS * rate:
        raise too_long(where, count / rate)
    if count > MOST_SAMPLES:
        raise PromptError(f"{where}: received {count} samples, expected at most {MOST_SAMPLES}", hint=CONVERT)


def _damaged(where: str, form: str, problem: str) -> PromptError:
    return PromptError(f"{where}: the {form} file is damaged: {problem}", hint="give a whole file")


def _package(form: str) -> Any:
    """Return the module soundfile. Raise MissingPackageError without it, or without the library that it needs."""
    try:
        import soundfile
    except (ImportError, OSError) as error:  # OSError: it finds no libsndfile
        raise missing_package("soundfile", purpose=f"decoding {form}", instead=CONVERT) from error
    return soundfile
