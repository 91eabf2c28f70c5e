"""Seconds of one run, as an interval, from a profile or from a data sheet."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import log2
from typing import NamedTuple, Protocol

from speccompile.measure.predict.devices import DeviceRow
from speccompile.measure.predict.work import Work
from speccompile.measure.profile import Profile
from speccompile.measure.profile.graphs import bytes_per_weight
from speccompile.plan.precisions import OWN_LAYOUTS

PROFILE_ERROR, PROFILE_RATIO_ERROR = 0.2, 0.1
"""Relative error of a time and of a ratio of times from a profile. Estimates; docs/how-to/predict.md has what was
measured."""

SHARE = 0.6, 0.9
"""Share of a device's peak bandwidth that decoding reaches: 82 to 94 % on one card, some 80 % for copies of DRAM."""

PRODUCTS_SHARE = 0.25, 1.0
"""Share of the peak of products: a half, and a factor of two either way, because kernels differ by instruction set."""

SHEET_RATIO_ERROR = 0.25

_LIKE = {"codes of 8 bits": "int8", "codes of 4 bits": "int4"}
"""Codes of GGUF files -> precision whose kernels are timed."""

BANDWIDTH, PRODUCTS, OVERHEAD = "bandwidth", "products", "overhead"


class Interval(NamedTuple):
    """Lower and upper bound."""

    low: float
    high: float


@dataclass(frozen=True)
class RunTime:
    """Seconds of a run, the middle of them for ratios, and what takes most of them."""

    seconds: Interval
    middle: float
    limit: str


class Costs(Protocol):
    """Source of times."""

    @property
    def ratio_error(self) -> float:
        """Return the relative error of a ratio of two of its times."""

    def run(self, work: Work, rows: int, context: int, resident: float) -> RunTime:
        """Return the time of a run over `rows` tokens and `context` committed ones. resident: bytes of all weights that
        a round reads, which decide which caches hold them."""

    def ceiling(self, byte_count: float) -> float:
        """Return the highest number of reads of so many bytes a second."""


@dataclass(frozen=True)
class ProfileCosts:
    """Times from a profile: of products by format, footprint and rows, attention, nodes."""

    profile: Profile
    ratio_error: float = PROFILE_RATIO_ERROR

    def run(self, work: Work, rows: int, context: int, resident: float) -> RunTime:
        found = self.profile
        linear = sum(count * self._linear(word, resident, rows) for word, count in work.weights.items()) / 1e6
        attend = work.attention * (context + rows) * _along(found.rows, found.attend, rows) / 1e6
        argmax = work.logits * rows * found.argmax / 1e6
        rowwise = work.elements * rows * found.gate / 1e6
        overhead = found.run_seconds + work.nodes * found.node_seconds
        read = work.weight_bytes / self._bandwidth(resident)
        seconds = linear + attend + argmax + rowwise + overhead
        shares = {
            BANDWIDTH: min(read, linear),
            PRODUCTS: max(linear - read, 0) + attend + argmax + rowwise,
            OVERHEAD: overhead,
        }
        limit = max(shares, key=lambda name: shares[name])
        return RunTime(Interval(seconds * (1 - PROFILE_ERROR), seconds * (1 + PROFILE_ERROR)), seconds, limit)

    def ceiling(self, byte_count: float) -> float:
        return self._bandwidth(byte_count) / byte_count

    def _bandwidth(self, resident: float) -> float:
        """Return the bytes a second of the fastest read that was measured at this footprint, a product of one row or
        the maximum of a buffer."""
        best = [
            max([read * 1e9, *(1e6 * bytes_per_weight(word) / table[place][0] for word, table in self._tables())])
            for place, read in enumerate(self.profile.bandwidth)
        ]
        return _along(self._sizes, best, log2(resident))

    def _tables(self) -> list[tuple[str, tuple[tuple[float, ...], ...]]]:
        """Return the precisions that have a size of their own, and their times, none of which is zero."""
        known = ((word, self.profile.linear.get(word)) for word in OWN_LAYOUTS)
        return [(word, table) for word, table in known if table and all(row[0] > 0 for row in table)]

    @property
    def _sizes(self) -> list[float]:
        return [log2(each) for each in self.profile.footprints]

    def _linear(self, word: str, resident: float, rows: int) -> float:
        """Return the seconds of a million weights. Codes take the time of as many bits, by the bytes that are read;
        other formats take bfloat16's."""
        near = _LIKE.get(word, word)
        if near not in self.profile.linear:
            near = word = "bfloat16"
        by_footprint = [_along(self.profile.rows, each, rows, beyond=True) for each in self.profile.linear[near]]
        share = bytes_per_weight(word) / bytes_per_weight(near)
        return share * _along(self._sizes, by_footprint, log2(resident))


@dataclass(frozen=True)
class DataSheetCosts:
    """Times from peak figures: the longer of reading and of computing. Nodes and the host are not known."""

    row: DeviceRow
    ratio_error: float = SHEET_RATIO_ERROR

    def run(self, work: Work, rows: int, context: int, resident: float) -> RunTime:
        del resident
        size = work.weight_bytes + context * work.cache_bytes
        peak = self.row.products
        operations = 2 * rows * (work.products + 2 * work.attention * (context + rows))
        bounds, limit = list[float](), BANDWIDTH
        for share, products_share in zip(reversed(SHARE), reversed(PRODUCTS_SHARE), strict=True):
            read = size / (share * self.row.bandwidth * 1e9)
            compute = operations / (products_share * peak) if peak else 0.0
            bounds.append(max(read, compute))
            limit = PRODUCTS if compute > read else limit
        low, high = bounds
        return RunTime(Interval(low, high), (low * high) ** 0.5, limit)

    def ceiling(self, byte_count: float) -> float:
        return self.row.bandwidth * 1e9 / byte_count


def _along(places: Sequence[float], values: Sequence[float], at: float, *, beyond: bool = False) -> float:
    """Interpolate between points. Outside of them: the nearest value, or `beyond` the last one the last slope."""
    if at <= places[0] or len(places) == 1:
        return values[0]
    index = min(bisect_right(places, at), len(places) - 1)
    share = (at - places[index - 1]) / (places[index] - places[index - 1])
    if not beyond:
        share = min(share, 1.0)
    return max(values[index - 1] + share * (values[index] - values[index - 1]), 0.0)
