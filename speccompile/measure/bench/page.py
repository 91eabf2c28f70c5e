"""HTML page of a report."""

from collections.abc import Iterator
from pathlib import Path

from speccompile.measure.bench.cost_model import CostModel
from speccompile.measure.bench.groups import OVERALL, Group
from speccompile.measure.bench.html import Table, make_html, write_html
from speccompile.measure.bench.mode import QUANTILES, ModeStatistics
from speccompile.measure.bench.plots import bar_chart, line_chart
from speccompile.measure.bench.report import Report
from speccompile.measure.bench.roofline import Roofline
from speccompile.measure.bench.table import ROWS, cell, equality_lines, head_lines

_WIDEST = 16
"""Widest window in a plot, unless the decoding window is wider."""


def write_page(report: Report, path: Path) -> None:
    """Write the page atomically. Raise SpeccompileError if that fails."""
    write_html(make_page(report), path)


def make_page(report: Report) -> str:
    """Return the page's HTML."""
    equality = list(equality_lines(report)) if report.speculative else []
    return make_html(
        report.bundle,
        f"{report.bundle}: speculative beside autoregressive decoding",
        lead=[*_lead(report), *equality[:1]],
        head=[],
        notes=equality[1:],
        plots=dict(_plots(report)),
        tables=dict(_tables(report)),
        after=head_lines(report),
    )


def _lead(report: Report) -> Iterator[str]:
    """Yield the answer of the page: how much faster drafts make it, over the questions where there are groups."""
    means = next((group for group in report.groups if group.group == OVERALL), None)
    if report.speculative is None:
        yield f"{cell(report.autoregressive.tokens_per_second, '.1f')} tokens/s, without drafts"
    elif means is not None and means.speedup is not None:
        accepted = cell(means.speculative.mean_accepted if means.speculative else None, ".2f")
        yield f"{means.speedup:.2f} times autoregression over {means.prompts} questions; {accepted} tokens a round"
    elif report.speedup is not None:
        accepted = cell(report.speculative.mean_accepted, ".2f")
        yield f"{report.speedup:.2f} times autoregression; {accepted} tokens a round"


def _ways(report: Report) -> dict[str, ModeStatistics]:
    ways = {"speculative": report.speculative, "autoregressive": report.autoregressive}
    return {name: way for name, way in ways.items() if way is not None}


def _plots(report: Report) -> Iterator[tuple[str, str]]:
    ways = _ways(report)
    speeds = {name: (way.tokens_per_second, way.decode_tokens_per_second) for name, way in ways.items()}
    yield "Speed", bar_chart(["whole", "without prefill"], speeds, "tokens per second")
    if report.groups:
        by_group = {
            name: [rate.tokens_per_second if (rate := getattr(group, name)) else None for group in report.groups]
            for name in ways
        }
        yield "Speed by group", bar_chart([group.group for group in report.groups], by_group, "tokens per second")
    if depths := report.acceptance_by_depth:
        shares = {
            "accepted": [depth.accepted for depth in depths],
            "after the previous": [depth.accepted_after_previous for depth in depths],
        }
        yield "Acceptance by depth", bar_chart([str(depth.depth) for depth in depths], shares, "share of drafts")
    if report.costs:
        yield "Cost of a window", _cost_plot(report.costs, report.speculative)
    waits = {
        name: [(share, seconds * 1e3) for share, seconds in zip(QUANTILES, way.inter_token_distribution, strict=True)]
        for name, way in ways.items()
        if way.inter_token_distribution
    }
    if waits:
        yield "Time between tokens", line_chart(waits, "ms, a round's time shared by its tokens", "% of tokens")


def _cost_plot(costs: CostModel, speculative: ModeStatistics | None) -> str:
    """Plot cost and break-even over the window width. Speculation wins while the mean accepted exceeds break-even."""
    decoding = costs.break_even.width if costs.break_even else 1
    shown = [point for point in costs.verify if point.width <= max(decoding, _WIDEST)]
    curves = {"verify": [(float(point.width), point.ratio) for point in shown]}
    marks = {}
    if speculative is not None:
        curves["break-even"] = [(float(point.width), costs.break_even_at(point)) for point in shown]
        if speculative.mean_accepted is not None:
            marks[f"mean accepted {speculative.mean_accepted:.2f}"] = speculative.mean_accepted
    return line_chart(curves, "cost over that of a window of one", "window width", marks)


def _tables(report: Report) -> Iterator[tuple[str, Table]]:
    ways = _ways(report)
    rows = [(title, *(cell(value(way), form) for way in ways.values())) for title, value, form in ROWS]
    if report.speedup is not None:
        rows += [
            ("speedup", cell(report.speedup, ".2f")),
            ("speedup without prefill", cell(report.decode_speedup, ".2f")),
        ]
    yield "Speed and time", [("", *ways), *rows]
    yield "Groups", [("", "questions", *ways, "speedup", "mean accepted"), *map(_group_row, report.groups)]
    if report.costs:
        yield "Costs of a round", _cost_rows(report.costs)
    if report.roofline:
        yield "Memory", _memory_rows(report.roofline)


def _group_row(group: Group) -> tuple[str, ...]:
    ours, theirs = group.speculative, cell(group.autoregressive.tokens_per_second, ".1f")
    rates = (cell(ours.tokens_per_second, ".1f"), theirs) if ours else (theirs,)
    accepted = cell(ours.mean_accepted if ours else None, ".2f")
    return group.group, str(group.prompts), *rates, cell(group.speedup, ".2f"), accepted


def _cost_rows(costs: CostModel) -> Table:
    rows = [
        (f"verify, width {point.width}", f"{point.seconds * 1e3:.3f}", f"{point.ratio:.2f}") for point in costs.verify
    ]
    if costs.draft_seconds is not None:
        rows.append(("draft", f"{costs.draft_seconds * 1e3:.3f}", ""))
    rows.append(("host", f"{costs.host_seconds * 1e3:.3f}", ""))
    return [(f"over {costs.context} tokens of context", "ms", "over a window of one"), *rows]


def _memory_rows(roofline: Roofline) -> Table:
    ways = {"speculative": roofline.speculative, "autoregressive": roofline.autoregressive}
    speed = f"{roofline.bandwidth.bytes_per_second / 1e9:.1f} GB/s, threads: {roofline.bandwidth.threads}"
    return [
        (speed, "MB a token", "of the bandwidth"),
        *(
            (name, f"{way.bytes_per_token / 1e6:.2f}", cell(way.share, ".0%"))
            for name, way in ways.items()
            if way is not None
        ),
    ]
