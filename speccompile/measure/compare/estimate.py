"""Estimate of the seconds that a comparison takes: from sizes first, then from measured times."""

from dataclasses import dataclass, field
from statistics import fmean

FIRST_BUILD, BUILD = 20.0, 5.0
"""Guessed seconds of the first build, with the imports of a process, and of the next ones, without the weights."""
BUILD_RATE = 100e6
"""Guessed bytes of weights per second of a build."""
TOKEN, TOKEN_RATE = 0.004, 5e9
"""Guessed seconds of a token beside its weights, and bytes of weights read per second."""
START = 1.5
"""Guessed seconds of a pass beside its tokens."""
DROPPED, STAYING = 0.6, 0.4
"""Guessed share of the prompts that the first pass of a method runs, and of methods in the later passes."""


@dataclass
class Estimate:
    """Estimate, and the times that refine it. weights: bytes of the target; tokens: new tokens of a pass in one mode;
    repeats: number of passes."""

    weights: int
    tokens: int
    repeats: int
    builds: list[float] = field(default_factory=list)
    """Seconds of the builds so far."""
    first: list[float] = field(default_factory=list)
    """Seconds of the first passes so far, of all but autoregressive decoding."""
    later: list[float] = field(default_factory=list)
    """Seconds of complete passes, the first ones included."""
    stayed: list[bool] = field(default_factory=list)
    """Flags, one per method: True if it was measured on all prompts, for those whose first pass has ended."""

    def left(self, builds: int, first: int, staying: float) -> float:
        """Return the seconds that are left. builds, first: methods without a bundle, without a first pass; staying:
        later passes of methods that stay by now."""
        return self._building(builds) + first * self._first() + self._more(first, staying) * self.whole()

    def _building(self, builds: int) -> float:
        if self.builds:
            return builds * fmean(self.builds[1:] or self.builds)
        return FIRST_BUILD + builds * BUILD + self.weights / BUILD_RATE if builds else 0.0

    def whole(self) -> float:
        """Return the seconds of a complete pass."""
        if self.later:
            return fmean(self.later)
        return START + 2 * self.tokens * (TOKEN + self.weights / TOKEN_RATE)

    def _first(self) -> float:
        return fmean(self.first) if self.first else DROPPED * self.whole()

    def _more(self, first: int, staying: float) -> float:
        """Return the expected number of later passes."""
        share = fmean(self.stayed) if self.stayed else STAYING
        return staying + share * first * (self.repeats - 1)


def duration(seconds: float) -> str:
    """Return rounded seconds as text for people: "40 s", "3.5 min", "2 h 10 min"."""
    if seconds < 60:
        return f"{max(5 * round(seconds / 5), 5)} s"
    if seconds < 600:
        return f"{round(seconds / 30) / 2:g} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
