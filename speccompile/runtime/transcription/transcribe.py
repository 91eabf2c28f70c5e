"""Transcribing with an open bundle, which runs one window after another."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Protocol

from speccompile.bundle.manifest import Manifest
from speccompile.bundle.sources import AUDIO
from speccompile.errors import UsageError
from speccompile.runtime.audio.reader import read_long_sound
from speccompile.runtime.audio.rules import RuleMatcher
from speccompile.runtime.batch import Batch, Owner
from speccompile.runtime.generation import Generation
from speccompile.runtime.generation_options import GenerationKeywords, GenerationOptions, resolve_options
from speccompile.runtime.sources import check_language
from speccompile.runtime.transcription.long_form import LongForm, Transcription


class Listener(Owner, Protocol):
    """Bundle as transcribing sees it."""

    def reuse_last(self) -> None: ...


class TranscribeKeywords(GenerationKeywords, total=False):
    """Keyword arguments of a transcript: of a generation, and with the names and types of `LongForm`."""

    timestamps: bool
    initial_prompt: str | None
    condition_on_previous_text: bool
    compression_ratio_threshold: float | None
    logprob_threshold: float | None
    no_speech_threshold: float | None


def begin_transcription(
    bundle: Listener, call: str, audio: Any, language: str | None, options: Any, keywords: TranscribeKeywords
) -> Transcription:
    """Return the transcription of one sound, which writes segments as they are asked for. call: the public name, for
    messages; language: None to detect it; options: as keywords. Raise UsageError for a bundle that does not hear, and
    as `Bundle.generate`."""
    chosen, form = split_keywords(call, bundle.manifest.max_length, options, keywords)

    def decode(prompt: list[int], options: GenerationOptions, matcher: RuleMatcher) -> Generation:
        bundle.reuse_last()  # the same sound is encoded once, and its first tokens are read once
        batch = Batch(bundle, [prompt], options, matcher=matcher)
        for _ in batch.run():
            pass
        return batch.generations()[0]

    check_hears(bundle.manifest)
    bundle._use.check_open()
    about = bundle.manifest.source
    assert about is not None, "a target that hears"
    refuse_unused(chosen)
    if language is not None:
        check_language(about, language, "language")
    sound = read_long_sound(audio, about[AUDIO])
    return Transcription(decode, bundle.manifest, bundle.text, sound, language, chosen, form)


def check_hears(manifest: Manifest) -> None:
    """Raise UsageError for a bundle whose target does not hear."""
    if AUDIO not in (manifest.source or {}):
        raise UsageError(
            "this bundle's target does not hear: it cannot transcribe", hint="build one of a Whisper, and give that"
        )


_UNUSED = ("audio", "source", "source_language", "target_language", "constraint", "session")


def refuse_unused(options: GenerationOptions) -> None:
    """Raise UsageError for options of a generation that a transcript has no use for."""
    for name in _UNUSED:
        if getattr(options, name) is not None:
            raise UsageError(
                f"{name}: received {getattr(options, name)!r}, but a transcript has no such option",
                hint="give the sound, and language, as the first arguments",
            )


FORM = frozenset(field.name for field in fields(LongForm))


def split_keywords(call: str, most: int, options: Any, given: Mapping[str, Any]) -> tuple[GenerationOptions, LongForm]:
    """Return the options of a generation and of a long form from keywords. most: default of `max_new_tokens`. Raise
    TypeError for an unknown one, UsageError for a wrong value."""
    form = LongForm(**{name: value for name, value in given.items() if name in FORM})
    others: Any = {name: value for name, value in given.items() if name not in FORM}
    defaults = GenerationOptions(max_new_tokens=most) if options is None else options
    return resolve_options(call, defaults, others, FORM), form
