"""Limits of a service's queue and times."""

from dataclasses import dataclass, fields

from speccompile.errors import UsageError
from speccompile.machine.keywords import checks_keywords

BY_PRIORITY = "priority"
POLICIES = ("fcfs", BY_PRIORITY)
"""Orders of a service's queue, by vLLM's names."""


@checks_keywords("Limits")
@dataclass(frozen=True)
class Limits:
    """Limits of a service. requests, tokens: that may wait for a batch slot, beyond the running ones; tokens are prompt
    tokens, and a single request may always wait. sequences: maximum of one request. queue_seconds: maximum wait of a
    request for its first slot, None for ever; seconds: maximum in all, from the submission. client_rows: slots that
    requests of one client may have at once, None for all. reuse: whether cached tokens of earlier texts serve prompts
    with the same prefix. scheduling_policy: who gets the next slot: who came first (fcfs), or of those with the lowest
    priority number who came first (priority), if need be the slot of a running sequence with a higher number."""

    requests: int = 64
    tokens: int = 65536
    sequences: int = 16
    queue_seconds: float | None = None
    seconds: float | None = None
    client_rows: int | None = None
    reuse: bool = True
    scheduling_policy: str = POLICIES[0]

    def __post_init__(self) -> None:
        """Raise UsageError for a limit that would let nothing pass."""
        if self.scheduling_policy not in POLICIES:
            expected = " or ".join(POLICIES)
            raise UsageError(
                f"Limits.scheduling_policy: received {self.scheduling_policy!r}, expected {expected}",
                hint="or leave it out",
            )
        for name in (field.name for field in fields(self) if field.name not in ("reuse", "scheduling_policy")):
            value, may_be_none = getattr(self, name), name in ("requests", "tokens")
            if value is not None and (value < 0 or (value == 0 and not may_be_none)):
                expected = "0 or more" if may_be_none else "more than 0"
                raise UsageError(f"Limits.{name}: received {value!r}, expected {expected}", hint="or leave it out")

    def check(self, sequences: object, priority: int) -> None:
        """Raise UsageError for a request with more sequences than one may have, or with a priority where the queue has
        none."""
        if isinstance(sequences, int) and sequences > self.sequences:
            raise UsageError(
                f"num_return_sequences: received {sequences}, expected at most {self.sequences}, the service's limit",
                hint="ask several times, or serve with larger limits (Limits.sequences)",
            )
        if priority and self.scheduling_policy != BY_PRIORITY:
            raise UsageError(
                f"priority: received {priority}, but this service takes requests in the order of their arrival",
                hint="leave it out, or serve with --scheduling-policy priority (Limits.scheduling_policy)",
            )
