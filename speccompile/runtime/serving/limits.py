"""How much a service lets wait, and for how long."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """requests, tokens: that may wait for a row, beyond those that have one; tokens are those of their prompts.
    queue_seconds: how long a request may wait, None for ever; seconds: how long it may take in all. client_rows: rows
    that requests of one client may have at once, None for all."""

    requests: int = 64
    tokens: int = 65536
    queue_seconds: float | None = None
    seconds: float | None = None
    client_rows: int | None = None
