"""How much a service lets wait, and for how long."""

from dataclasses import dataclass, fields

from speccompile.errors import UsageError


@dataclass(frozen=True)
class Limits:
    """requests, tokens: that may wait for a row, beyond those that have one; tokens are those of their prompts, and one
    request may always wait alone. sequences: that one request may ask for. queue_seconds: how long a request may wait
    for its first row, None for ever; seconds: how long it may take in all, from when it was asked. client_rows: rows
    that requests of one client may have at once, None for all. reuse: whether what the rows hold of earlier texts
    serves prompts that begin like them."""

    requests: int = 64
    tokens: int = 65536
    sequences: int = 16
    queue_seconds: float | None = None
    seconds: float | None = None
    client_rows: int | None = None
    reuse: bool = True

    def __post_init__(self) -> None:
        """Raises UsageError for a limit that would let nothing pass."""
        for name in (field.name for field in fields(self) if field.name != "reuse"):
            value, may_be_none = getattr(self, name), name in ("requests", "tokens")
            if value is not None and (value < 0 or (value == 0 and not may_be_none)):
                expected = "0 or more" if may_be_none else "more than 0"
                raise UsageError(f"Limits.{name}: received {value!r}, expected {expected}", hint="or leave it out")
