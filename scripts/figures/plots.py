"""Plots of figures, as SVG files for light and dark pages."""

from collections.abc import Callable

from scripts.figures.tables import Measurement, by_speedup, latest_first, titled
from speccompile.measure.bench.plots import COLOURS, bar_rows, line_chart

PLOTTED = ("prompt_lookup", "model", "eagle3", "dflash", "medusa")
"""Methods whose acceptance is drawn: those that draft a chain of their own."""
DEEPEST = 8


def acceptance(data: Measurement) -> str:
    series = {}
    for key in PLOTTED:
        depths = data["rows"][key]["fixed"]["acceptance_by_depth"]
        series[data["rows"][key]["label"]] = [
            (depth["depth"], 100 * depth["accepted"]) for depth in depths if depth["depth"] <= DEEPEST
        ]
    return _file(line_chart(series, "share of rounds in which the draft token was accepted, %", "depth"))


def speedup(data: Measurement) -> str:
    ratios = {row["label"]: round(row["fixed"]["speedup"], 2) for row in by_speedup(data)}
    return _file(bar_rows(ratios, "speedup over autoregressive, fixed draft length", mark=1.0))


def window_cost(data: Measurement) -> str:
    series = {
        row["label"]: [(point["width"], point["ratio"]) for point in row["costs"]["verify"] if point["width"] <= 9]
        for row in data["rows"].values()
    }
    return _file(line_chart(series, "time of a verification over that of a window of one", "tokens in the window"))


def long_contexts(data: Measurement) -> str:
    """Draw milliseconds a token by context, of the processor that was measured last: without caches of two dtypes,
    which lie on the line of int8 and would take a colour more than there are."""
    _, measured = latest_first(data)[0]
    series: dict[str, list[tuple[int, float]]] = {}
    for row in (row for row in measured["contexts"] if "int8/int4" not in row["form"]):
        series.setdefault(titled(row["form"]), []).append((row["context"], round(1000 / row["tokens_per_second"], 1)))
    return _file(line_chart(series, "milliseconds a token", "tokens of context"))


PLOTS: dict[str, tuple[str, Callable[[Measurement], str]]] = {
    "acceptance.svg": ("methods", acceptance),
    "speedup.svg": ("methods", speedup),
    "window-cost.svg": ("precisions", window_cost),
    "long.svg": ("long", long_contexts),
}
"""File of docs/figures -> its measurement, and what draws it."""


def _file(plot: str) -> str:
    """Return a plot as a file of its own, with the colors of both schemes."""
    light, dark = (" ".join(f"--c{index}: {pair[scheme]};" for index, pair in enumerate(COLOURS)) for scheme in (0, 1))
    classes = " ".join(
        f".f{index} {{ fill: var(--c{index}) }} .s{index} {{ stroke: var(--c{index}) }}"
        for index in range(len(COLOURS))
    )
    style = (
        f"svg {{ --text: #1c2733; --back: #fff; --line: #dfe3e8; {light} font-family: system-ui, sans-serif }}\n"
        "@media (prefers-color-scheme: dark) "
        f"{{ svg {{ --text: #e4e9ef; --back: #14191f; --line: #313a45; {dark} }} }}\n"
        "text { fill: var(--text) } .line { fill: none } .grid { stroke: var(--line) }\n"
        ".over { paint-order: stroke; stroke: var(--back); stroke-width: 3 }\n"
        f"{classes}"
    )
    opening, rest = plot.split("\n", 1)
    named = opening.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return f"{named}\n<style>\n{style}\n</style>\n{rest}\n"
