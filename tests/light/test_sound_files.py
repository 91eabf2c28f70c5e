"""Sounds in other formats than WAV: what soundfile decodes, and the limits of what is decoded."""

import contextlib
import io
import sys

import numpy as np
import pytest

from speccompile.errors import MissingPackageError, PromptError
from speccompile.runtime.audio.reader import read_sounds
from speccompile.runtime.audio.sound_files import parse_sound, read_sound
from tests.light.test_audio import AUDIO

SAMPLES = (0.3 * np.sin(np.arange(9000) * 0.05)).astype(np.float32)


def written(form, samples=SAMPLES, rate=16_000):
    """Return the bytes of a file of this format."""
    file = io.BytesIO()
    pytest.importorskip("soundfile", reason="the extra sounds").write(file, samples, rate, format=form)
    return file.getvalue()


@pytest.mark.parametrize(("form", "limit"), [("FLAC", 2e-5), ("OGG", 0.03), ("MP3", 0.05)])
def test_other_formats_are_decoded(form, limit, tmp_path):
    (tmp_path / "a").write_bytes(written(form, np.stack([SAMPLES, 0.5 * SAMPLES], 1), 8_000))
    found = read_sound(tmp_path / "a")
    assert (found.rate, found.samples.dtype, found.samples.shape) == (8_000, np.float32, (9000,))
    assert np.abs(found.samples - 0.75 * SAMPLES).max() < limit
    assert read_sounds(tmp_path / "a", AUDIO | {"frames": 200})[0].shape == (80, 200)


@pytest.mark.parametrize(("form", "limit"), [("FLAC", "lost sync"), ("OGG", "malformed"), ("MP3", "of 9000 samp")])
def test_files_that_are_cut_off_are_damaged(form, limit):
    data = written(form)
    with pytest.raises(PromptError, match=f"a: the {form.replace('OGG', 'Ogg')} file is damaged: .*{limit}"):
        parse_sound(data[: len(data) // 2], "a")
    with pytest.raises(PromptError, match="file is damaged"):
        parse_sound(data[:4] + bytes(99), "a")


class Claims:
    """Looks like soundfile with a sound of `frames` samples, of which its header claims `claimed`."""

    SoundFileError, samplerate = OSError, 16_000
    frames, left, reads = 0, 0, 0

    def SoundFile(self, file):
        return contextlib.nullcontext(self)

    def read(self, most, **how):
        size = min(most, self.left)
        self.left, self.reads = self.left - size, self.reads + 1
        return np.zeros((size, 1), np.float32)


def test_lengths_are_checked_before_and_while_files_are_decoded(monkeypatch):
    found = Claims()
    monkeypatch.setitem(sys.modules, "soundfile", found)
    found.frames = 16_000 * 4 * 3600 + 1
    with pytest.raises(PromptError, match="a: received 14400 s, expected at most 14400 s"):
        parse_sound(b"fLaC", "a")
    found.samplerate, found.frames = 96_000, 48_000 * 4 * 3600 + 1
    with pytest.raises(PromptError, match="received 691200001 samples, expected at most 691200000"):
        parse_sound(b"fLaC", "a")
    assert found.reads == 0
    found.samplerate, found.frames, found.left = 1000, 5, 10**12
    with pytest.raises(PromptError, match="expected at most 14400 s"):
        parse_sound(b"OggS", "a")
    assert found.reads == 14  # not all of what it would give
    found.samplerate = 0
    with pytest.raises(PromptError, match="the MP3 file is damaged: 0 samples a second"):
        parse_sound(b"ID3", "a")


def test_the_extra_of_other_formats_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(MissingPackageError, match="soundfile, expected the extra 'sounds', which decoding FLAC needs"):
        parse_sound(b"fLaC" + bytes(20), "a")
    with pytest.raises(MissingPackageError, match="which decoding MP3 needs") as caught:
        parse_sound(b"\xff\xf3\x88d", "a")
    assert caught.value.hint.startswith("pip install 'speccompile[sounds]', or convert it first: ffmpeg -i SOUND")
