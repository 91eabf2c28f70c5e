"""What rounds and prompts cost on this machine, as far as it has been seen."""

ROUNDS = 3
"""Rounds in whose time a chunk of a prompt is read while others decode: fewer make prompts slow, more gaps long."""

SMALLEST = 8
"""Tokens of a chunk: one costs about as much as any fewer."""

KEPT = 0.9
"""Weight of all that was seen before, beside the newest."""


class LatencyEstimates:
    """Seconds, averaged over the last rounds, chunks and copies. They decide when tokens come, never which."""

    def __init__(self) -> None:
        self._round = self._copy = 0.0
        self._seconds = self._tokens = 0.0

    def record_round(self, seconds: float) -> None:
        """A round took so long."""
        self._round = _moved(self._round, seconds)

    def record_prefill(self, tokens: int, seconds: float) -> None:
        """A chunk of a prompt took so long."""
        self._seconds = KEPT * self._seconds + seconds
        self._tokens = KEPT * self._tokens + tokens

    def record_copy(self, seconds: float) -> None:
        """What one row holds was copied into another in so long."""
        self._copy = _moved(self._copy, seconds)

    def prefill_seconds(self, tokens: int) -> float:
        """How long so many tokens of prompts take; 0 while none has been read."""
        return tokens * self._seconds / self._tokens if self._tokens else 0.0

    def chunk(self) -> int | None:
        """How many tokens of a prompt to read between two rounds; None for as many as a chunk has. Powers of two, as
        every other width would be one more to prepare."""
        token = self.prefill_seconds(1)
        if not token or not self._round:
            return None
        affordable = int(ROUNDS * self._round / token)
        return max(SMALLEST, 1 << max(0, affordable.bit_length() - 1))

    def pays_to_copy(self, tokens: int) -> bool:
        """Whether it takes longer to read so many tokens than to copy a row."""
        return self._copy <= self.prefill_seconds(tokens)


def _moved(average: float, seconds: float) -> float:
    return KEPT * average + (1 - KEPT) * seconds if average else seconds
