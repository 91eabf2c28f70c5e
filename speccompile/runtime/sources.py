"""Sources of a call: texts or token ids, in a language, and the tokens with which their answers begin."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from speccompile.bundle.manifest import Manifest
from speccompile.bundle.sources import AUDIO
from speccompile.errors import PromptError, UsageError
from speccompile.runtime.audio.mel import Features
from speccompile.runtime.audio.reader import read_sounds, transcript_start
from speccompile.runtime.generation_options import GenerationOptions
from speccompile.runtime.text.prompts import Prompt, check_token_ids, prompt_token_ids
from speccompile.runtime.text.tokenizer import Tokenizer

Source = list[int] | Features
"""Tokens of a text, or features of a sound."""

_SHOWN, _LONGEST = 6, 80
"""Number of languages that a message names."""


_RECEIVED = {
    "source": "received a source",
    "source_language": "source_language: received one",
    "target_language": "target_language: received one",
    "audio": "audio: received a sound",
    "task": "task: received one",
}
"""Option of targets with an encoder -> how a message about others begins."""

_HEARD = ("audio", "task")
"""Options of targets that hear alone."""


class SourcedPrompts(NamedTuple):
    """Tokens or features of each source of a call, None for a target without an encoder, and its prompts."""

    sources: list[Source] | None
    prompts: list[Prompt | None]


def resolve_sources(
    prompts: Sequence[Prompt | None], options: GenerationOptions, manifest: Manifest, text: Tokenizer | None
) -> SourcedPrompts:
    """Return the sources of a call, and its prompts: the beginnings of the answers.

    A prompt that is None is what every answer begins with; a text follows it; token ids replace it. Raise UsageError
    for sources, or languages, that the bundle has no use for, PromptError for a source that is missing, empty, too long
    or not of the vocabulary, and for prompts of another number.
    """
    about = manifest.source
    if about is None:
        refuse_sources(options)
        return SourcedPrompts(None, list(prompts))
    if options.session is not None:
        raise UsageError(
            "session: received a file, but what a target with an encoder has read depends on its source",
            hint="leave session out",
        )
    if AUDIO in about:
        return _resolve_sounds(prompts, options, about, text)
    refuse_sources(options, _HEARD)
    written = _as_list(options.source)
    if not written:
        raise PromptError(
            "this bundle's target has an encoder: received no source, expected the text that it reads",
            hint="give it with --source or --source-file; in Python, generate(source=...)",
        )
    asked = _paired(prompts, written, "source")
    sources: list[Source] = [source_tokens(each, options.source_language, manifest, text) for each in written]
    start = start_tokens(about, options.target_language)
    begun: list[Prompt | None] = [_answer(prompt, start, text) for prompt in asked]
    return SourcedPrompts(sources if len(sources) > 1 else sources * len(begun), begun)


def _resolve_sounds(
    prompts: Sequence[Prompt | None], options: GenerationOptions, about: dict[str, Any], text: Tokenizer | None
) -> SourcedPrompts:
    """Return what `resolve_sources` does, for a target that hears."""
    if options.source is not None:
        raise UsageError("source: received one, but this bundle's target hears", hint="give audio in its place")
    if options.target_language is not None:
        raise UsageError(
            "target_language: received one, but this bundle's target writes what is spoken, or English",
            hint="give source_language, what is spoken; task='translate' writes English",
        )
    sounds: list[Source] = [*read_sounds(options.audio, about[AUDIO])]
    asked = _paired(prompts, sounds, AUDIO)
    begun = [_answer(prompt, _heard_start(about, prompt, options), text) for prompt in asked]
    return SourcedPrompts(sounds if len(sounds) > 1 else sounds * len(begun), list(begun))


def _heard_start(about: dict[str, Any], prompt: Prompt | None, options: GenerationOptions) -> list[int]:
    """Return the tokens with which a transcript begins; none where token ids replace them. Raise UsageError for a
    language or a task that the target does not know."""
    if prompt is not None and not isinstance(prompt, str):
        return []
    language = options.source_language
    if about["languages"] and language is None:
        raise UsageError(
            "source_language: received none, expected the language that is spoken",
            hint="Bundle.transcribe and speccompile transcribe detect it",
        )
    if language is not None:
        check_language(about, language)
    return transcript_start(about, language, options.task)


def _paired(prompts: Sequence[Prompt | None], sources: Sequence[object], option: str) -> list[Prompt | None]:
    """Return the prompts of a call, None for each source without any. Raise PromptError for another number."""
    asked = list(prompts) or [None] * len(sources)
    if len(sources) not in (1, len(asked)):
        raise PromptError(
            f"received {len(sources)} sources for {len(asked)} prompts, expected one for each, or one for all",
            hint=f"give {option}=[...] with a source for each prompt",
        )
    return asked


def start_tokens(about: dict[str, Any], language: str | None = None) -> list[int]:
    """Return the tokens with which an answer begins. about: the manifest's section `source`; for a target that hears,
    any of its languages counts as spoken. Raise UsageError for an unknown language."""
    if AUDIO in about:
        return transcript_start(about, min(about["languages"], default=None), None)
    start, forced = about["start_token_id"], about["forced_bos_token_id"]
    if language is not None:
        token = _language(about, language, "target_language")
        if about["language_is_start"]:
            start = token
        else:
            forced = token
    return [start] if forced is None else [start, forced]


def refuse_sources(options: GenerationOptions, names: Sequence[str] = tuple(_RECEIVED)) -> None:
    """Raise UsageError for options of a target with an encoder."""
    for name in names:
        if getattr(options, name) is not None:
            raise UsageError(
                f"{_RECEIVED[name]}, but this bundle's target has no encoder that takes it",
                hint="give a prompt, or a bundle whose target is an encoder-decoder",
            )


def _as_list(source: Any) -> list[Prompt]:
    """Return the sources: of a text or a list of token ids one."""
    if source is None:
        return []
    if isinstance(source, str):
        return [source]
    several = list(source)
    return [several] if several and not isinstance(several[0], str | Sequence) else several or [[]]


def source_tokens(source: Prompt, language: str | None, manifest: Manifest, text: Tokenizer | None) -> list[int]:
    """Return the tokens of a source. language: that of the source; by default what the tokenizer writes. Raise as
    `resolve_sources`."""
    about = manifest.source
    if about is not None and AUDIO in about:
        raise UsageError(
            "received a text, but this bundle's target hears: expected a sound",
            hint="speccompile transcribe BUNDLE SOUND.wav",
        )
    if about is None:
        raise UsageError(
            "received a source, but this bundle's target has no encoder that reads it",
            hint="give a prompt, or a bundle whose target is an encoder-decoder",
        )
    ids = prompt_token_ids(source, text, None)
    if language is not None:
        token = _language(about, language, "source_language")
        if isinstance(source, str):
            known = set(about["languages"].values())
            ids = [token if each in known else each for each in ids]
        if token not in ids:
            raise PromptError(
                f"source_language: received {language!r}, but the tokenizer writes no language into this source",
                hint="give a text: its tokenizer's own language is replaced" if not isinstance(source, str) else
                "leave source_language out",
            )  # fmt: skip
    if not ids:
        raise PromptError("the source is empty: expected at least one token", hint="give a text or token ids")
    longest = about["max_length"]
    if len(ids) > longest:
        raise PromptError(
            f"the source has {len(ids)} tokens, more than this bundle's longest source of {longest}",
            hint="shorten it, or build the bundle with a larger source.max_length",
        )
    check_token_ids(ids, manifest, text, hint=None)
    return ids


def _answer(prompt: Prompt | None, start: list[int], text: Tokenizer | None) -> Prompt:
    if prompt is None:
        return start
    if not isinstance(prompt, str):
        return prompt
    if text is None:
        return prompt  # refused with all other texts
    return [*start, *text.encode(prompt, special_tokens=False)]


def check_language(about: dict[str, Any], language: str, name: str = "source_language") -> None:
    """Raise UsageError for a language of a source that a target does not know. name: of the option, for messages."""
    _language(about, language, name)


def _language(about: dict[str, Any], language: str, name: str) -> int:
    known: dict[str, int] = about["languages"]
    if language in known:
        return known[language]
    if not known:
        raise UsageError(
            f"{name}: received {language[:_LONGEST]!r}, but this bundle's target knows no languages by name",
            hint=f"leave {name} out",
        )
    close = get_close_matches(language, known, n=1)
    shown = ", ".join(sorted(known)[:_SHOWN]) + (", .." if len(known) > _SHOWN else "")
    raise UsageError(
        f"{name}: received {language[:_LONGEST]!r}, expected one of this bundle's {len(known)} languages: {shown}",
        hint=f"did you mean {close[0]!r}?" if close else "`speccompile inspect` names them all",
    )
