"""A report as one HTML page: tables, and plots that are part of it. It loads nothing and runs no script."""

import os
from collections.abc import Iterator
from pathlib import Path

from speccompile.bench.budget import Budget
from speccompile.bench.groups import Group
from speccompile.bench.plots import bar_chart, line_chart
from speccompile.bench.report import Report
from speccompile.bench.roofline import Roofline
from speccompile.bench.table import ROWS, cell, equality_lines, head_lines
from speccompile.bench.ways import QUANTILES, Way
from speccompile.errors import EngineError, SpeccompileError, UsageError

Table = list[tuple[str, ...]]
"""Rows of texts, the first one the head."""

_WIDEST = 16
"""Of the windows in a plot, where decoding has none that are wider."""

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{{ report.bundle }}: speculative beside autoregressive decoding</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; color: #1c2733; background: #fff; max-width: 84em; margin: 2em auto;
  padding: 0 1em }
table { border-collapse: collapse }
th, td { padding: 0.15em 0.9em; text-align: right; border-bottom: 1px solid #dfe3e8 }
th:first-child, td:first-child { text-align: left }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(26em, 1fr)); gap: 1em 2em }
h1, h2 { font-weight: 600 }
h2 { font-size: 1.1em; margin: 1.4em 0 0.4em }
svg { width: 100%; font-family: inherit; fill: #1c2733 }
</style>
</head>
<body>
<h1>{{ report.bundle }}</h1>
<p>{% for line in head %}{{ line }}<br>
{% endfor %}</p>
<p>{% for line in equality %}{{ line }}<br>
{% endfor %}</p>
<div class="plots">
{% for title, plot in plots.items() %}<section>
<h2>{{ title }}</h2>
{{ plot | safe }}
</section>
{% endfor %}</div>
{% for title, rows in tables.items() %}<h2>{{ title }}</h2>
<table>
<tr>{% for text in rows[0] %}<th>{{ text }}</th>{% endfor %}</tr>
{% for row in rows[1:] %}<tr>{% for text in row %}<td>{{ text }}</td>{% endfor %}</tr>
{% endfor %}</table>
{% endfor %}</body>
</html>
"""


def check_page(path: Path) -> None:
    """Raise UsageError where `write_page` could not write, EngineError without the jinja2 package: before the work that
    the page is about."""
    folder = path.parent
    if path.is_dir() or not folder.is_dir():
        reason = "it is a folder" if path.is_dir() else f"there is no folder '{folder}'"
        raise UsageError(
            f"--html: received '{path}', expected a file in a folder that exists: {reason}",
            hint="make the folder, or give another file",
        )
    try:
        import jinja2  # noqa: F401
    except ImportError:
        raise EngineError(
            "--html needs the Python package jinja2, which is not installed", hint="pip install jinja2, or leave it out"
        ) from None


def write_page(report: Report, path: Path) -> None:
    """Write the page, whole or not at all. Raises SpeccompileError where it cannot be written."""
    page = make_page(report)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_text(page, encoding="utf-8")
        unfinished.replace(path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise SpeccompileError(
            f"{path}: the page could not be written: {error.strerror}", hint="give another file with --html"
        ) from error


def make_page(report: Report) -> str:
    """The page's text."""
    from jinja2 import Environment

    return (
        Environment(autoescape=True)
        .from_string(_PAGE)
        .render(
            report=report,
            head=head_lines(report),
            equality=list(equality_lines(report)) if report.speculative else [],
            plots=dict(_plots(report)),
            tables={title: table for title, table in _tables(report) if len(table) > 1},
        )
    )


def _ways(report: Report) -> dict[str, Way]:
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


def _cost_plot(costs: Budget, speculative: Way | None) -> str:
    """Both curves over the window's width; speculation wins where what is accepted lies above the second."""
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
    yield "Both ways", [("", *ways), *rows]
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


def _cost_rows(costs: Budget) -> Table:
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
