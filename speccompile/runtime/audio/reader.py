"""Sounds of a call, in whatever form, to features; and the tokens with which a transcript begins."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from speccompile.bundle.source_section import AUDIO_SIZES, NO_TIMES
from speccompile.bundle.sources import AUDIO
from speccompile.errors import PromptError, UsageError
from speccompile.runtime.audio.mel import Features, Samples, log_mel, long_log_mel
from speccompile.runtime.audio.resample import resample
from speccompile.runtime.audio.sound_files import parse_sound, read_sound
from speccompile.runtime.audio.wav import MOST_SECONDS, Sound, too_long

TRANSCRIBE = "transcribe"
"""Task by default."""

_FORMS = "the path of a sound's file, its bytes, samples float32 [n] in [-1, 1], or features float32 [mels, frames]"


def read_sounds(audio: Any, about: dict[str, Any]) -> list[Features]:
    """Return features of each sound. audio: a sound or a list of them; about: the manifest's part `audio`. Raise
    PromptError for a sound that is missing, empty, too long, damaged or of another format."""
    if audio is None:
        raise PromptError(
            "this bundle's target hears: received no sound, expected one",
            hint="speccompile transcribe BUNDLE SOUND.wav; in Python, generate(audio=...)",
        )
    several = audio if isinstance(audio, list | tuple) else [audio]
    if not several:
        raise PromptError("audio: received no sounds, expected at least one", hint="give a sound")
    return [_features(each, about) for each in several]


class HeardSound(NamedTuple):
    """Features float32 [mels, F] of a sound of any length, at least as long as the encoder hears at once, and the
    sound's seconds."""

    features: Features
    seconds: float


def read_long_sound(audio: Any, about: dict[str, Any]) -> HeardSound:
    """Return the features of one sound, as `read_sounds` takes it, up to `MOST_SECONDS` long. Features may have more
    frames than the encoder hears at once. Raise PromptError as that does, and UsageError for several sounds."""
    if isinstance(audio, list | tuple) and len(audio) != 1:
        raise UsageError(f"transcribe: received {len(audio)} sounds, expected one", hint="call it for each of them")
    (audio,) = audio if isinstance(audio, list | tuple) else [audio]
    if audio is None:
        read_sounds(audio, about)
    if isinstance(audio, np.ndarray) and audio.ndim == 2:
        return HeardSound(_checked_features(audio, about, None), audio.shape[1] * about["hop"] / about["sampling_rate"])
    rate = about["sampling_rate"]
    if isinstance(audio, np.ndarray) and audio.size > MOST_SECONDS * rate:  # before all of it is looked at, as of files
        raise too_long("audio", audio.size / rate)
    samples, sizes = _samples(audio, about), {name: about[name] for name in AUDIO_SIZES}
    make = log_mel if len(samples) <= about["frames"] * about["hop"] else long_log_mel
    return HeardSound(make(samples, **sizes), len(samples) / rate)


def _features(audio: Any, about: dict[str, Any]) -> Features:
    if isinstance(audio, np.ndarray) and audio.ndim == 2:
        return _checked_features(audio, about, about["frames"])
    samples = _samples(audio, about)
    longest = about["frames"] * about["hop"]
    if len(samples) > longest:
        raise PromptError(
            f"audio: received {len(samples) / about['sampling_rate']:.1f} s, expected at most "
            f"{longest / about['sampling_rate']:g} s, which the encoder hears at once",
            hint="Bundle.transcribe and speccompile transcribe take long sounds",
        )
    return log_mel(samples, **{name: about[name] for name in AUDIO_SIZES})


def _checked_features(audio: Any, about: dict[str, Any], frames: int | None) -> Features:
    """Return features as an array in order. frames: their number; None: at least a window of the encoder."""
    mels, least = about["mels"], about["frames"]
    fits = audio.shape[0] == mels and (audio.shape[1] == frames if frames else audio.shape[1] >= least)
    if not fits or not np.isfinite(audio).all():
        wanted = [mels, frames] if frames else f"[{mels}, {least} or more]"
        raise PromptError(
            f"audio: received features of shape {list(audio.shape)}, expected finite ones of {wanted}",
            hint="give samples: their features are made here",
        )
    return np.ascontiguousarray(audio, np.float32)


def _samples(audio: Any, about: dict[str, Any]) -> Samples:
    """Return the samples of a sound at the target's rate. Raise PromptError as `_sound`, and for floats so large that
    the power of a frame would be infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        sound = _sound(audio, about["sampling_rate"])
        samples = resample(sound.samples, sound.rate, about["sampling_rate"])
        loudest = np.maximum(samples.max(), -samples.min())
        power = np.square(loudest * np.float32(about["window"]))
    if not np.isfinite(power):
        raise PromptError(
            f"audio: received samples of up to {loudest:g}, expected them in [-1, 1]", hint="check where they come from"
        )
    return samples


def _sound(audio: Any, rate: int) -> Sound:
    if isinstance(audio, str | Path):
        return read_sound(Path(audio))
    if isinstance(audio, bytes | bytearray):
        return parse_sound(bytes(audio), "audio")
    if not (isinstance(audio, np.ndarray) and audio.ndim == 1 and np.issubdtype(audio.dtype, np.floating)):
        shown = f"array {audio.dtype} {list(audio.shape)}" if isinstance(audio, np.ndarray) else type(audio).__name__
        raise PromptError(f"audio: received {shown}, expected {_FORMS}", hint="divide whole numbers by their largest")
    if not audio.size or not np.isfinite(audio).all():
        problem = "no samples" if not audio.size else "samples that are no finite numbers"
        raise PromptError(f"audio: received {problem}, expected a sound", hint="check where they come from")
    return Sound(audio.astype(np.float32), rate)


def transcript_start(
    about: dict[str, Any], language: str | None, task: str | None, *, timed: bool = False
) -> list[int]:
    """Return the tokens with which a transcript begins, for a language that `about`, the manifest's section `source`,
    knows, None for a target of one language. timed: it has times. Raise UsageError for an unknown task."""
    audio, tokens = about[AUDIO], [about["start_token_id"]]
    if language is not None:
        tokens.append(about["languages"][language])
        if audio["tasks"]:
            tokens.append(audio["tasks"][check_task(audio, task)])
    else:
        if task not in (None, TRANSCRIBE):
            raise UsageError(f"task: received {task!r}, but this bundle's target only transcribes", hint="leave it out")
        tokens += audio["prompt"]
    last = audio[NO_TIMES]
    if timed:
        return tokens[:-1] if tokens[-1] == last else tokens
    return tokens if last is None or tokens[-1] == last else [*tokens, last]


def check_task(audio: dict[str, Any], task: str | None) -> str:
    """Return the name of a task, by default to transcribe. Raise UsageError for one that the target does not know."""
    if task is None and TRANSCRIBE in audio["tasks"]:
        return TRANSCRIBE
    if task not in audio["tasks"]:
        names = ", ".join(sorted(audio["tasks"]))
        raise UsageError(f"task: received {task!r}, expected one of {names}", hint="leave it out to transcribe")
    return str(task)
