"""Limits of reading one request."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ReadLimits:
    """Limits of reading one request: its JSON, chat template, tokens and grammar. seconds: of a processor;
    memory_mib: MiB beyond what an idle reader has; grammar_bytes: of a schema, grammar, expression or list of choices;
    waiting: requests that may wait for a reader."""

    seconds: float = 3.0
    memory_mib: int = 512
    grammar_bytes: int = 64 * 1024
    waiting: int = 64
