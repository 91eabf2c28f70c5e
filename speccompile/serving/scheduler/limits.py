"""Limits of a service's queue and times."""

from dataclasses import dataclass, fields

from speccompile.errors import UsageError


@dataclass(frozen=True)
class Limits:
    """Limits of a service. requests, tokens: that may wait for a batch slot, beyond the running ones; tokens are prompt
    tokens, and a single request may always wait. sequences: maximum of one request. queue_seconds: maximum wait of a
    request for its first slot, None for ever; seconds: maximum in all, from the submission. client_rows: slots that
    requests of one client may have at once, None for all. reuse: whether cached tokens of earlier texts serve prompts
    with the same prefix."""

    requests: int = 64
    tokens: int = 65536
    sequences: int = 16
    queue_seconds: float | None = None
    seconds: float | None = None
    client_rows: int | None = None
    reuse: bool = True

    def __post_init__(self) -> None:
        """Raise UsageError for a limit that would let nothing pass."""
        for name in (field.name for field in fields(self) if field.name != "reuse"):
            value, may_be_none = getattr(self, name), name in ("requests", "tokens")
            if value is not None and (value < 0 or (value == 0 and not may_be_none)):
                expected = "0 or more" if may_be_none else "more than 0"
                raise UsageError(f"Limits.{name}: received {value!r}, expected {expected}", hint="or leave it out")


def check_sequences(asked: object, limits: Limits) -> None:
    """Raise UsageError if a request asks for more sequences than a service serves."""
    if isinstance(asked, int) and asked > limits.sequences:
        raise UsageError(
            f"num_return_sequences: received {asked}, expected at most {limits.sequences}, the service's limit",
            hint="ask several times, or serve with larger limits (Limits.sequences)",
        )
