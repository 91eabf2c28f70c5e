"""Predictions and devices as tables for people."""

from collections.abc import Iterable, Sequence

from speccompile.measure.predict.costs import Interval
from speccompile.measure.predict.devices import DeviceRow
from speccompile.measure.predict.predict import Prediction, Way


def write_prediction(found: Prediction) -> str:
    """Return the memory, the ceiling, a line for every way, and the notes."""
    memory = f"{_size(found.running_bytes)} when it runs"
    memory += f", of {_size(found.device_memory)}" if found.device_memory else ""
    head = [
        f"{found.name} on {found.device}, {found.precision}, {found.context} committed tokens",
        f"memory   weights {_size(found.weight_bytes)}, drafter {_size(found.drafter_bytes)}, "
        f"caches {_size(found.cache_bytes)}; {memory}",
        f"ceiling  {found.ceiling:.3g} tokens/s by bandwidth alone, without drafts",
    ]
    with_acceptance = found.acceptance is not None
    speed = "tokens/s" if with_acceptance else "tokens/s, none to all accepted"
    title = ("", "ms a round", "limited by", "break-even", speed, "speedup")
    rows = [_row(way, with_acceptance=with_acceptance) for way in found.ways]
    notes = [f"note: {each}" for each in found.notes]
    if not with_acceptance and len(found.ways) > 1:
        notes.append("note: how many drafts are accepted is not known: give --accept")
    return "\n".join([*head, "", *_aligned([title, *rows]), *notes])


def write_devices(rows: Iterable[DeviceRow]) -> str:
    """Return a line for every device: name, bandwidth, memory, how sure the bandwidth is, title."""
    title = ("name", "GB/s", "GiB", "certainty", "device", "date")
    lines = [
        (
            row.name, f"{row.bandwidth:g}", f"{row.memory:g}" if row.memory else "-", row.bandwidth_certainty,
            row.title, row.date,
        )
        for row in rows
    ]  # fmt: skip
    return "\n".join(_aligned([title, *lines]))


def _row(way: Way, *, with_acceptance: bool) -> tuple[str, ...]:
    even = "-"
    if way.drafts:
        rate = f" (rate {way.break_even_rate:.2f})" if way.break_even_rate is not None else ""
        even = f"{way.break_even:.2f} tokens{rate}"
    speedup = _between(way.speedup) if way.drafts else "1"
    if with_acceptance and way.drafts:
        speedup += " faster" if way.faster else " slower" if way.speedup.high < 1 else " not sure"
    millis = Interval(*(1000 * each for each in way.round_seconds))
    return way.name, _between(millis), way.limit, even, _between(way.tokens_per_second), speedup


def _between(interval: Interval) -> str:
    low, high = (f"{each:.3g}" for each in interval)
    return low if low == high else f"{low} to {high}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
