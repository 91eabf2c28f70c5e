"""Sources and sounds of questions, for targets with an encoder."""

from typing import Any

from speccompile.bundle.manifest import Manifest
from speccompile.bundle.prompts import GIVEN_FORMS, SOUND, Question
from speccompile.bundle.sources import AUDIO, SOURCE
from speccompile.errors import PromptError
from speccompile.runtime import Bundle
from speccompile.runtime.audio.mel import Features
from speccompile.runtime.audio.reader import read_sounds
from speccompile.runtime.rounds.source_encoder import as_heard

PROMPT = "prompt"
"""See `Question.given`: for a target with an encoder that reads texts, a prompt is a source as well."""


def source_keyword(manifest: Manifest, source: Any) -> dict[str, Any]:
    """Return the keyword argument of `Bundle.generate` for a source or a sound; {} for a language model."""
    return {} if manifest.source is None else {AUDIO if AUDIO in manifest.source else SOURCE: source}


def example(manifest: Manifest) -> tuple[list[int] | Features, dict[str, str]]:
    """Return some prompt of one token, source or sound, and options of its generation."""
    about = manifest.source or {}
    languages = about["languages"] if AUDIO in about else {}
    return as_heard(manifest, [0]), {"source_language": min(languages)} if languages else {}


class QuestionSources:
    """Sources of questions, each read once: features of a sound, and the language that is detected in it."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._sounds: dict[Question, tuple[Features, dict[str, str]]] = {}

    def read(self, question: Question) -> list[int] | Features:
        """Return the tokens of a source, or the features of a sound. Raise PromptError for what the bundle's target
        does not read, UsageError for a language that it does not know."""
        self._check(question)
        if question.given == SOUND:
            return self._heard(question)[0]
        return self._bundle.source_token_ids(question.turns[0], dict(question.languages).get("source_language"))

    def languages(self, question: Question) -> dict[str, str]:
        """Return options of the generation, after `read`."""
        if question.given == SOUND:
            return self._heard(question)[1]
        return {name: value for name, value in question.languages if name != "source_language"}

    def _check(self, question: Question) -> None:
        about = self._bundle.manifest.source
        if question.category is not None:
            raise PromptError(
                f"received a question of category {question.category!r}, expected a source: this bundle's target has "
                "an encoder, and no conversation",
                hint=f"write sources as lines of {GIVEN_FORMS}",
            )
        hears = about is not None and AUDIO in about
        if about is None or hears != (question.given == SOUND):
            received = "a sound" if question.given == SOUND else "a source" if question.given != PROMPT else "a prompt"
            wanted = "a sound" if hears else "a prompt" if about is None else "a source"
            raise PromptError(
                f"received {received}, expected {wanted}, as this bundle's target reads",
                hint=f'write lines of {GIVEN_FORMS if about is not None else """{"prompt": "text"}"""}',
            )

    def _heard(self, question: Question) -> tuple[Features, dict[str, str]]:
        if question not in self._sounds:
            about: Any = self._bundle.manifest.source
            features, languages = read_sounds(question.turns[0], about[AUDIO])[0], dict(question.languages)
            if about["languages"] and not languages:
                languages["source_language"] = str(self._bundle.transcribe(features, max_new_tokens=1).language)
            self._sounds[question] = features, languages
        return self._sounds[question]
