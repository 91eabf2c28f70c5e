"""Measured costs of rounds and of prefill on this machine."""

ROUNDS = 3
"""Duration of a prefill chunk in decoding rounds where as many sequences wait for it as for the next round: at most
twice this where few decode, less where few wait. A smaller value makes prompts slow, a larger one raises latency."""

SMALLEST = 8
"""Minimum number of tokens of a chunk: fewer tokens cost about the same."""

KEPT = 0.9
"""Weight of all earlier measurements against the newest."""


class LatencyEstimates:
    """Moving averages of seconds of rounds, chunks and copies. They decide when tokens come, never which."""

    def __init__(self) -> None:
        self._round = self._copy = 0.0
        self._seconds = self._tokens = 0.0

    def record_round(self, seconds: float) -> None:
        """Record the duration of a round."""
        self._round = _moved(self._round, seconds)

    def record_prefill(self, tokens: int, seconds: float) -> None:
        """Record the duration of a prefill chunk of `tokens` tokens."""
        self._seconds = KEPT * self._seconds + seconds
        self._tokens = KEPT * self._tokens + max(tokens, SMALLEST)

    def record_copy(self, seconds: float) -> None:
        """Record the duration of copying one slot's state to another slot."""
        self._copy = _moved(self._copy, seconds)

    def prefill_seconds(self, tokens: int) -> float:
        """Return the expected seconds of a prefill of `tokens` tokens; 0 before any measurement."""
        return tokens * self._seconds / self._tokens if self._tokens else 0.0

    def chunk(self, waiting: int, decoding: int, taken: int = 0) -> int | None:
        """Return the number of prompt tokens to prefill between two rounds, or None for a full chunk. Only powers of
        two, because every other width would have to be bound as well. waiting: sequences that have a slot or find one,
        whose prompts are not read; decoding: sequences that wait for the next round; taken: tokens of other prompts
        since the last one. 0 follows once they have taken more than half of what may be read."""
        token = self.prefill_seconds(1)
        if not token or not self._round or decoding < 1:
            return None
        affordable = int(2 * ROUNDS * (waiting / (waiting + decoding)) * self._round / token)
        if taken and 2 * taken > affordable:
            return 0
        return max(SMALLEST, 1 << max(0, (affordable - taken).bit_length() - 1))

    def pays_to_copy(self, tokens: int) -> bool:
        """Return whether a prefill of `tokens` tokens takes at least as long as copying a slot."""
        return self._copy <= self.prefill_seconds(tokens)


def _moved(average: float, seconds: float) -> float:
    return KEPT * average + (1 - KEPT) * seconds if average else seconds
