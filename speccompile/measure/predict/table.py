"""Predictions and devices as tables for people."""

from collections.abc import Iterable, Sequence

from speccompile.measure.predict.costs import Interval
from speccompile.measure.predict.devices import DeviceRow
from speccompile.measure.predict.predict import PredictedShape, Prediction


def write_prediction(found: Prediction) -> str:
    """Return the memory, the ceiling, a line for every shape, and the notes."""
    memory = f"{_size(found.running_bytes)} when it runs"
    memory += f", of {_size(found.device_memory)}" if found.device_memory else ""
    head = [
        f"{found.name} on {found.device}, {found.precision}, {found.context} committed tokens",
        f"memory   weights {_size(found.weight_bytes)}, drafter {_size(found.drafter_bytes)}, "
        f"caches {_size(found.cache_bytes)}; {memory}",
        f"ceiling  {_number(found.ceiling)} tokens/s by bandwidth alone, without drafts",
    ]
    with_acceptance = found.acceptance is not None
    speed = "tokens/s" if with_acceptance else "tokens/s, none to all accepted"
    title = ("", "ms a round", "limited by", "break-even", speed, "speedup")
    rows = [_row(shape, with_acceptance=with_acceptance) for shape in found.shapes]
    notes = [f"note: {each}" for each in found.notes]
    if not with_acceptance and len(found.shapes) > 1:
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


def _row(shape: PredictedShape, *, with_acceptance: bool) -> tuple[str, ...]:
    even = "-"
    if shape.drafts:
        rate = f" (rate {shape.break_even_rate:.2f})" if shape.break_even_rate is not None else ""
        even = f"{shape.break_even:.2f} tokens{rate}"
    speedup = _between(shape.speedup) if shape.drafts else "1"
    if with_acceptance and shape.drafts:
        speedup += " faster" if shape.faster else " slower" if shape.speedup.high < 1 else " not sure"
    millis = Interval(*(1000 * each for each in shape.round_seconds))
    return shape.name, _between(millis), shape.limit, even, _between(shape.tokens_per_second), speedup


def _between(interval: Interval) -> str:
    low, high = map(_number, interval)
    return low if low == high else f"{low} to {high}"


def _number(value: float) -> str:
    """Return three digits, or all of a larger number."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
