"""Sounds in C++ against Python's, which tests/light compares with transformers: WAV files, features, other rates."""

import json
import os
import resource
import struct
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch

from speccompile.errors import PromptError
from speccompile.runtime.audio.mel import log_mel
from speccompile.runtime.audio.reader import transcript_start
from speccompile.runtime.audio.resample import resample
from speccompile.runtime.audio.sound_files import read_sound
from speccompile.runtime.transcription.segments import Segment, compression_ratio, cut_at_times, previous_tokens
from speccompile.runtime.transcription.subtitles import srt_block, timed_line, vtt_block
from tests.light.test_audio import AUDIO, FORMS, OTHER_BLOCK, SECTION, riff
from tests.light.test_transcripts import END, FIRST, SIZE, processor
from tests.native.bundle_lines import Lines, outcome

Array = np.ndarray[Any, np.dtype[np.float32]]


class AudioLines(Lines):
    """native/tests/audio.cpp: arrays go through files of a folder."""

    program = "audio_lines"

    def __init__(self, build: Path, folder: Path) -> None:
        super().__init__(build)
        self.folder = folder

    def array(self, name: str, value: Any, samples: Array | None = None, **more: Any) -> Array:
        """Return what was written, and keep the answer."""
        if samples is not None:
            (self.folder / "in").write_bytes(samples.tobytes())
        self.answer = self.ask(name, value, samples=str(self.folder / "in"), out=str(self.folder / "out"), **more)
        return np.frombuffer((self.folder / "out").read_bytes(), np.float32)


@pytest.fixture(scope="module")
def native(native_build: Path, tmp_path_factory: pytest.TempPathFactory):
    started = AudioLines(native_build, tmp_path_factory.mktemp("sounds"))
    yield started
    started.close()


def read_both(native: AudioLines, data: bytes) -> tuple[Any, Any]:
    """Return what both read of a file's bytes, or how they refuse it."""
    path = native.folder / "sound.wav"
    path.write_bytes(data)

    def ours() -> tuple[list[float], int]:
        samples = native.array("wav", str(path))
        return samples.tolist(), native.answer

    def theirs() -> tuple[list[float], int]:
        found = read_sound(path)
        return found.samples.tolist(), found.rate

    return outcome(ours), outcome(theirs)


@pytest.mark.parametrize(("kind", "bits", "data", "more"), FORMS)
def test_samples_of_every_form_are_read(native: AudioLines, kind: int, bits: int, data: bytes, more: bytes) -> None:
    ours, theirs = read_both(native, riff(kind, 2, bits, data, more=more))
    assert ours == theirs == (([0.125, -0.125], 16_000),)


@pytest.mark.parametrize(
    "data",
    [
        b"RIFF\0\0\0\0WAVE", riff(1, 1, 16, b"ab")[:-10], OTHER_BLOCK, riff(1, 1, 16, b""),
        riff(1, 1, 12, b"ab"), riff(6, 1, 8, b"ab"), riff(1, 0, 16, b"ab"),
        riff(3, 1, 32, struct.pack("<f", float("nan"))), riff(3, 2, 32, struct.pack("<ff", 3e38, 3e38)),
        riff(2, 1, 4, b"ab"), riff(3, 1, 64, struct.pack("<d", 1e300)), riff(1, 1, 16, b"ab", rate=0),
        riff(1, 1, 16, b"ab", rate=800_000), riff(1, 1, 8, bytes(20_000), rate=1), riff(1, 1, 8, bytes(9), rate=999),
    ],
)  # fmt: skip
def test_wrong_files_are_refused_as_in_python(native: AudioLines, data: bytes) -> None:
    ours, theirs = read_both(native, data)
    assert len(theirs) == 3
    assert ours == theirs


def test_a_sound_that_is_too_long_is_refused_by_its_header(native: AudioLines, tmp_path: Path) -> None:
    """Files with holes: nobody reads what they say they have, and one that ends early, or whose writer knew no size, is
    as long as it is."""
    path, most = tmp_path / "a.wav", 4 * 3600
    for stated, size, told in ((5 * 3600, 5 * 3600, "18000 s"), (2**32 - 1, most + 1, "14401 s")):
        path.write_bytes(riff(1, 1, 16, b"")[:-4] + struct.pack("<I", min(stated * 32_000, 2**32 - 1)))
        os.truncate(path, path.stat().st_size + size * 32_000)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(PromptError, match=f"a.wav: received {told}, expected at most {most} s"):
            read_sound(path)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10
        kind, message, _ = outcome(lambda: native.array("wav", str(path)))
        assert (kind, told in message) == ("PromptError", True)


def test_what_is_no_wav_file_is_refused(native: AudioLines) -> None:
    for data, kind in ((b"", "an empty file"), (b"fLaC" + bytes(20), "FLAC"), (b"abc", "a file of another format")):
        (kind_of_error, message, hint), _ = read_both(native, data)
        assert (kind_of_error, "ffmpeg" in hint) == ("PromptError", True)
        assert f"expected a WAV file, got {kind}: other formats are read in Python alone" in message


def damage(data: bytes, dice: Random) -> bytes:
    """Return the bytes with some of them changed, cut or doubled."""
    changed = bytearray(data[: dice.randrange(len(data) + 1)] if dice.random() < 0.3 else data)
    for _ in range(dice.choice([1, 2, 8])):
        if changed:
            place = dice.randrange(min(len(changed), 60) if dice.random() < 0.8 else len(changed))
            changed[place : place + 1] = dice.choice(
                [b"", bytes([dice.choice([0, 1, 127, 128, 255])]), dice.randbytes(4)]
            )
    return bytes(changed)


@pytest.mark.parametrize("count", [150, pytest.param(5000, marks=pytest.mark.sweep("more damaged files"))])
def test_damaged_files_are_refused_or_read_as_in_python(native: AudioLines, count: int) -> None:
    dice, refused = Random(1), 0
    for number in range(count):
        kind, bits, data, more = FORMS[number % len(FORMS)]
        damaged = damage(riff(kind, 2, bits, data * 3, more=more), dice)
        ours, theirs = read_both(native, damaged)
        refused += len(theirs) == 3
        assert len(ours) == len(theirs), (number, ours, theirs)
        if len(ours) == 1:
            assert ours[0][1] == theirs[0][1]
            assert np.allclose(ours[0][0], theirs[0][0], rtol=1e-6, atol=1e-7), number  # sums of many channels round
    assert count / 10 < refused < count


@pytest.mark.parametrize(("mels", "frames"), [(80, 3000), (128, 400), (16, 7)])
def test_features_are_those_of_numpy(native: AudioLines, mels: int, frames: int) -> None:
    random, about = np.random.default_rng(0), AUDIO | {"mels": mels, "frames": frames}
    sizes = {name: about[name] for name in ("sampling_rate", "window", "hop", "mels", "frames")}
    for size in (1, 160 * frames // 3, 160 * frames):
        sound = (0.1 * random.normal(size=size)).astype(np.float32)
        found = native.array("features", about, sound, rate=16_000).reshape(mels, frames)
        assert native.answer == [mels, frames]
        assert np.abs(found - log_mel(sound, **sizes)).max() < 5e-6
    about |= {"window": 7 * 13, "hop": 3}  # odd, and no power of two
    found = native.array("features", about, sound[: 3 * frames], rate=16_000).reshape(mels, frames)
    sizes |= {"window": 91, "hop": 3}
    assert np.abs(found - log_mel(sound[: 3 * frames], **sizes)).max() < 5e-6


@pytest.mark.parametrize("rate", [8_000, 11_025, 44_100, 48_000, 16_000, 7_919])
def test_samples_at_another_rate_are_those_of_numpy(native: AudioLines, rate: int) -> None:
    sound = np.random.default_rng(rate).normal(size=5000).astype(np.float32)
    for size in (1, 2, 5000):
        expected = resample(sound[:size], rate, 16_000)
        found = native.array("resample", [rate, 16_000], sound[:size])
        assert found.shape == expected.shape
        assert np.abs(found - expected).max() < 1e-5


def test_sounds_that_are_too_long_are_refused(native: AudioLines) -> None:
    with pytest.raises(Exception, match=r"audio: received 2\.0 s, expected at most 1 s, which the encoder hears at on"):
        native.array("features", AUDIO, np.zeros(88_200, np.float32), rate=44_100)
    with pytest.raises(Exception, match="received samples that are no finite numbers"):
        native.array("features", AUDIO, np.full(4, np.nan, np.float32), rate=16_000)
    for rate in (16_000, 8_000):
        with pytest.raises(Exception, match=r"received samples of up to .*, expected them in \[-1, 1\]"):
            native.array("features", AUDIO, np.full(4, -3e38, np.float32), rate=rate)


def test_transcripts_begin_as_in_python(native: AudioLines) -> None:
    alone = SECTION | {"languages": {}, "audio": AUDIO | {"prompt": [6]}}
    for section, language, task in (
        (SECTION, "de", None), (SECTION, "en", "transcribe"), (SECTION, "en", "sing"), (alone, None, None),
        (alone, None, "translate"), (SECTION | {"audio": AUDIO | {"no_timestamps": None}}, "de", None),
    ):  # fmt: skip
        token = None if language is None else section["languages"][language]
        for timed in (False, True):
            ours = outcome(
                lambda s=section, k=token, t=task, d=timed: native.ask("start", s, language=k, task=t, timed=d)
            )
            theirs = outcome(lambda s=section, n=language, t=task, d=timed: transcript_start(s, n, t, timed=d))
            assert ours == theirs, json.dumps(ours)


@pytest.mark.parametrize("max_initial", [None, 4])
def test_rules_of_times_are_those_of_transformers(native: AudioLines, max_initial: int | None) -> None:
    theirs, random = processor(max_initial), np.random.default_rng(0)
    kinds = set()
    for _ in range(40):
        text: list[int] = []
        for _ in range(8):
            logits = random.normal(size=SIZE).astype(np.float32) * 2
            expected = theirs(torch.tensor([[0, 1, *text]]), torch.from_numpy(logits)[None])[0].numpy()
            found = native.array("times", [FIRST, max_initial, END], logits, text=text)
            assert np.array_equal(found, expected)
            kinds.add((np.isinf(found[:END]).all(), np.isinf(found[FIRST:]).all()))
            text.append(int(random.choice(np.flatnonzero(np.isfinite(found)))))
    assert kinds == {(False, False), (True, False), (False, True)}  # every rule forbade something


def test_windows_are_cut_as_in_python(native: AudioLines) -> None:
    dice = Random(2)
    for _ in range(300):
        tokens = [dice.choice([1, 2, FIRST, FIRST + 3, FIRST + 7]) for _ in range(dice.randrange(9))]
        for first in (FIRST, None):
            parts, step = cut_at_times(tokens, first, 100)
            assert native.ask("cut", tokens, first=first, frames=100) == [[list(each) for each in parts], step]
        assert native.ask("previous", [tokens, [4, 5]], first=FIRST) == list(previous_tokens([tokens, [4, 5]], FIRST))
        many = tokens * dice.randrange(1, 99)
        if many:
            assert native.ask("ratio", many, vocabulary=51_865) == compression_ratio(many, 51_865)


def test_subtitles_are_those_of_python(native: AudioLines) -> None:
    texts = [(1.5, 3723.25, " a < b --> c\n\nd "), (59.9996, 0.0005, "\u2028 \xa0x &\x85\x1cy \r\n"), (0.0, 2.0025, "")]
    for start, end, text in texts:
        segment = Segment(start, end, text, [1], 0.0, 0.0, -0.5, 1.0, None)
        for form, expected in (
            ("srt", srt_block(7, segment)), ("vtt", vtt_block(segment)), ("line", timed_line(segment))
        ):  # fmt: skip
            assert native.ask("subtitle", form, number=7, start=start, end=end, text=text) == expected
