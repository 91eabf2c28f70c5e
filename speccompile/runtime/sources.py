"""Sources of a call: texts or token ids, in a language, and the tokens with which their answers begin."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from speccompile.bundle.manifest import Manifest
from speccompile.errors import PromptError, UsageError
from speccompile.runtime.generation_options import GenerationOptions
from speccompile.runtime.text.prompts import Prompt, check_token_ids, prompt_token_ids
from speccompile.runtime.text.tokenizer import Tokenizer

_SHOWN = 6
"""Number of languages that a message names."""


_RECEIVED = {
    "source": "received a source",
    "source_language": "source_language: received one",
    "target_language": "target_language: received one",
}
"""Option of targets with an encoder -> how a message about others begins."""


class SourcedPrompts(NamedTuple):
    """Tokens of each source of a call, None for a target without an encoder, and its prompts."""

    sources: list[list[int]] | None
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
    written = _as_list(options.source)
    if not written:
        raise PromptError(
            "this bundle's target has an encoder: received no source, expected the text that it reads",
            hint="give it with --source or --source-file; in Python, generate(source=...)",
        )
    asked = list(prompts) or [None] * len(written)
    if len(written) not in (1, len(asked)):
        raise PromptError(
            f"received {len(written)} sources for {len(asked)} prompts, expected one for each, or one for all",
            hint="give source=[...] with a source for each prompt",
        )
    sources = [source_tokens(each, options.source_language, manifest, text) for each in written]
    start = start_tokens(about, options.target_language)
    begun: list[Prompt | None] = [_answer(prompt, start, text) for prompt in asked]
    return SourcedPrompts(sources if len(sources) > 1 else sources * len(begun), begun)


def start_tokens(about: dict[str, Any], language: str | None = None) -> list[int]:
    """Return the tokens with which an answer begins. about: the manifest's section `source`. Raise UsageError for an
    unknown language."""
    start, forced = about["start_token_id"], about["forced_bos_token_id"]
    if language is not None:
        token = _language(about, language, "target_language")
        if about["language_is_start"]:
            start = token
        else:
            forced = token
    return [start] if forced is None else [start, forced]


def refuse_sources(options: GenerationOptions) -> None:
    """Raise UsageError for options of a target with an encoder."""
    for name, received in _RECEIVED.items():
        if getattr(options, name) is not None:
            raise UsageError(
                f"{received}, but this bundle's target has no encoder that reads it",
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


def _language(about: dict[str, Any], language: str, name: str) -> int:
    known: dict[str, int] = about["languages"]
    if language in known:
        return known[language]
    if not known:
        raise UsageError(
            f"{name}: received {language!r}, but this bundle's target knows no languages by name",
            hint=f"leave {name} out",
        )
    close = get_close_matches(language, known, n=1)
    shown = ", ".join(sorted(known)[:_SHOWN]) + (", .." if len(known) > _SHOWN else "")
    raise UsageError(
        f"{name}: received {language!r}, expected one of this bundle's {len(known)} languages: {shown}",
        hint=f"did you mean {close[0]!r}?" if close else "`speccompile inspect` names them all",
    )
