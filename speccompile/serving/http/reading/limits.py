"""Limits of reading one request."""

from dataclasses import dataclass

from speccompile.runtime.constraints import CompileLimits


@dataclass(frozen=True)
class ReadLimits(CompileLimits):
    """Limits of reading one request: its JSON, chat template, tokens and grammar, which those of compiling a grammar
    hold for as a whole. waiting: requests that may wait for a reader."""

    waiting: int = 64
