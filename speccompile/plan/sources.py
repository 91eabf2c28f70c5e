"""Plan of a target with an encoder: how long its source may be, and with which tokens its answers begin."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


def without_none(data: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the data without an entry that is None: files of targets without an encoder do not mention it."""
    return {key: value for key, value in data.items() if key != name or value is not None}


@dataclass(frozen=True)
class SourceFacts:
    """Facts about an encoder-decoder from its checkpoint's files. positions: longest source, None without a limit.
    start: first token of every answer, which is never shown; forced_bos: token that follows it, None for any.
    languages: name -> token of the languages that a text may be said to be in; language_is_start: the token of the
    answer's language is the start token, not the one that follows it."""

    positions: int | None
    start: int
    forced_bos: int | None = None
    languages: Mapping[str, int] = field(default_factory=dict)
    language_is_start: bool = False

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class SourcePlan:
    """The source of a bundle's requests. max_length: in tokens, those that its tokenizer adds included."""

    max_length: int
    facts: SourceFacts

    def to_json(self) -> dict[str, Any]:
        """Return the manifest's section `source`."""
        facts = self.facts
        return {
            "max_length": self.max_length,
            "start_token_id": facts.start,
            "forced_bos_token_id": facts.forced_bos,
            "languages": dict(facts.languages),
            "language_is_start": facts.language_is_start,
        }
