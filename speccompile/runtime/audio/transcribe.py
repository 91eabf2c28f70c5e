"""Transcripts: what is spoken in a sound, in which language, as text."""

from dataclasses import dataclass, replace
from typing import Any, Protocol

from speccompile.bundle.sources import AUDIO
from speccompile.errors import UsageError
from speccompile.runtime.audio.reader import TRANSCRIBE, read_sounds, transcript_start
from speccompile.runtime.audio.rules import RuleMatcher, TokenRules
from speccompile.runtime.batch import Batch, Owner
from speccompile.runtime.generation import Generation
from speccompile.runtime.generation_options import GenerationOptions
from speccompile.runtime.sources import check_language


class Listener(Owner, Protocol):
    """Bundle as transcribing sees it."""

    def generate(self, prompt: None, options: GenerationOptions) -> Generation: ...


@dataclass(frozen=True)
class Transcript:
    """Text of a sound. text: without spaces around it, None without a tokenizer; language: its name, None of
    a target for one language; task: transcribe or translate; generation: how it was written."""

    text: str | None
    language: str | None
    task: str
    generation: Generation

    def to_json(self) -> dict[str, Any]:
        """Return the object of `speccompile transcribe --json`."""
        return self.generation.to_json() | {"text": self.text, "language": self.language, "task": self.task}


def transcribe(bundle: Listener, audio: Any, language: str | None, options: GenerationOptions) -> Transcript:
    """Return what is spoken in one sound. language: None to detect it. options: with as many new tokens as the bundle
    holds, unless they say less. Raise UsageError for a bundle that does not hear, and as `Bundle.generate`."""
    about = bundle.manifest.source
    if about is None or AUDIO not in about:
        raise UsageError(
            "this bundle's target does not hear: it cannot transcribe", hint="build one of a Whisper, and give that"
        )
    sounds = read_sounds(audio, about[AUDIO])
    if len(sounds) != 1:
        raise UsageError(f"transcribe: received {len(sounds)} sounds, expected one", hint="call it for each of them")
    if language is None and about["languages"]:
        language = detect_language(bundle, sounds[0])
    if language is not None:
        check_language(about, language)
    room = bundle.manifest.max_length - len(transcript_start(about, language, options.task))
    most = min(options.max_new_tokens, max(1, room))
    asked = replace(options, audio=sounds[0], source_language=language, max_new_tokens=most)
    found = bundle.generate(None, asked)
    return Transcript(found.text and found.text.strip(), language, options.task or TRANSCRIBE, found)


def detect_language(bundle: Listener, features: Any) -> str:
    """Return the language that a target for several hears: the most probable one behind the start token."""
    about = bundle.manifest.source
    assert about is not None, "a target that hears"
    options = GenerationOptions(audio=features, max_new_tokens=1, autoregressive=True, ignore_eos=True)
    batch = Batch(bundle, [[about["start_token_id"]]], options)
    tokens: dict[int, str] = {token: name for name, token in about["languages"].items()}
    batch.rows[0].matcher = RuleMatcher(TokenRules.only(tokens, bundle.manifest.vocabulary_size))
    for _ in batch.run():
        pass
    return tokens[batch.rows[0].token_ids[0]]
