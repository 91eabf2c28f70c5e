"""Plan of a target with an encoder: how long its source may be, and with which tokens its answers begin."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


def without_none(data: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the data without an entry that is None: files of targets without an encoder do not mention it."""
    return {key: value for key, value in data.items() if key != name or value is not None}


@dataclass(frozen=True)
class AudioFacts:
    """Facts about a target that hears: what its features are made of, and which tokens it may write.

    sampling_rate: samples a second; window, hop: samples of a frame and between two; mels, frames: shape of the log-mel
    features of the longest sound. tasks: name -> token; no_timestamps: token after which no times are written.
    suppressed: tokens that are never written, begin_suppressed: those that no text begins with. prompt: tokens behind
    the start token of a model without languages. max_initial_timestamp: largest first time, in rows of the encoder,
    None for any. previous: token behind which a text before the sound stands, None if there is none."""

    sampling_rate: int
    window: int
    hop: int
    mels: int
    frames: int
    tasks: Mapping[str, int] = field(default_factory=dict)
    no_timestamps: int | None = None
    suppressed: tuple[int, ...] = ()
    begin_suppressed: tuple[int, ...] = ()
    prompt: tuple[int, ...] = ()
    max_initial_timestamp: int | None = None
    previous: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the part `audio` of the manifest's section `source`."""
        lists = {name: list(getattr(self, name)) for name in ("suppressed", "begin_suppressed", "prompt")}
        return asdict(self) | {"tasks": dict(self.tasks)} | lists


@dataclass(frozen=True)
class SourceFacts:
    """Facts about an encoder-decoder from its checkpoint's files. positions: longest source, None without a limit.
    start: first token of every answer, which is never shown; forced_bos: token that follows it, None for any.
    languages: name -> token of the languages that a text may be said to be in; language_is_start: the token of the
    answer's language is the start token, not the one that follows it. audio: None for a target that reads texts."""

    positions: int | None
    start: int
    forced_bos: int | None = None
    languages: Mapping[str, int] = field(default_factory=dict)
    language_is_start: bool = False
    audio: AudioFacts | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"audio": self.audio.to_json()} if self.audio else without_none(asdict(self), "audio")


@dataclass(frozen=True)
class SourcePlan:
    """Source of a bundle's requests. max_length: in tokens, those that its tokenizer adds included; of a target that
    hears the encoder's rows, all of which count."""

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
            **({} if facts.audio is None else {"audio": facts.audio.to_json()}),
        }
