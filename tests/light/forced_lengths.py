"""Draft-length policy of tests: windows of given widths in turn, whatever the clock says."""

from collections.abc import Iterator, Sequence
from itertools import cycle

from speccompile.runtime import Bundle


class ForcedLengths:
    """Policy that cycles through widths; the largest one stands for a width that the bundle does not offer."""

    def __init__(self, wanted: Sequence[int], offered: Sequence[int]) -> None:
        self.offered = sorted(offered)
        self._wanted: Iterator[int] = cycle(wanted)
        self.chosen: list[int] = []
        self.lags: list[int] = []
        self.caught_up_with: list[int] = []

    def begin(self, prompt: int, max_new_tokens: int) -> int:
        return self.next_width(prompt)

    def join(self, prompt: int, max_new_tokens: int) -> None:
        assert prompt > 0 < max_new_tokens

    def record_batch_size(self, rows: int) -> None:
        assert rows > 0

    is_resting = False  # every width comes from the test

    def next_width(self, lag: int) -> int:
        wanted = next(self._wanted)
        self.lags.append(lag)
        self.chosen.append(wanted if wanted in self.offered else self.offered[-1])
        return self.chosen[-1]

    def expect_times(self, times: object) -> None:
        raise AssertionError("times are expected when a bundle is opened")

    def estimated_speedup(self, draft_lengths: Sequence[int], new_tokens: int) -> None:
        return None

    def measured_times(self) -> None:
        return None

    def record_autoregressive(self, seconds: float | None) -> None:
        assert seconds is None or seconds >= 0

    def record_verify(self, width: int, seconds: float | None, accepted: Sequence[int], without: int) -> None:
        assert seconds is None or seconds >= 0
        assert width <= self.chosen[-1] != 1
        assert without or accepted
        assert all(count < width for count in accepted)

    def record_draft(self, seconds: float | None) -> None:
        assert self.chosen[-1] > 1

    def record_catch_up(self, tokens: int, seconds: float, lost: float) -> None:
        assert tokens > 0
        self.caught_up_with.append(tokens)


def forced_lengths(bundle: Bundle, wanted: Sequence[int]) -> ForcedLengths:
    """Return a policy whose windows have these widths in turn, 1 for no drafts."""
    return ForcedLengths(wanted, bundle._loop.drafting.widths)


def force(bundle: Bundle, wanted: Sequence[int]) -> ForcedLengths:
    """Let windows of a bundle have these widths in turn. Return the policy."""
    policy = bundle._loop.drafting.policy = forced_lengths(bundle, wanted)
    return policy
