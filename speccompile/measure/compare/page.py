"""HTML page of a comparison: the fastest method per task, and the speed that costs allow."""

from collections.abc import Iterator
from pathlib import Path

from speccompile.measure.bench.html import make_html, write_html
from speccompile.measure.bench.plots import bar_rows, heat_map
from speccompile.measure.compare.report import ComparisonReport
from speccompile.measure.compare.table import (
    DROPPED,
    MEANING,
    Table,
    depth_shares,
    difference_lines,
    dropped_table,
    head_lines,
    published_table,
    ways_table,
)


def write_page(comparison: ComparisonReport, path: Path) -> None:
    """Write the page atomically. Raise SpeccompileError if that fails."""
    write_html(make_page(comparison), path)


def make_page(comparison: ComparisonReport) -> str:
    """Return the page's HTML."""
    return make_html(
        comparison.recipe,
        f"{comparison.recipe}: ways of drafting beside autoregressive decoding",
        head=head_lines(comparison),
        notes=[*_winners(comparison), *MEANING, *difference_lines(comparison)],
        plots=dict(_plots(comparison)),
        tables=dict(_tables(comparison)),
    )


def _winners(comparison: ComparisonReport) -> Iterator[str]:
    ways = {way.name: way for way in comparison.ways}
    for task, name in comparison.best.items():
        yield f"{task}: {name} is fastest, {ways[name].task(task).ratio:.2f} times autoregression"


def _plots(comparison: ComparisonReport) -> Iterator[tuple[str, str]]:
    ways, tasks = comparison.ways, comparison.tasks
    yield "Speed", bar_rows({way.name: way.ratio for way in ways}, "times autoregression, prefill included", 1.0)
    yield "Mean accepted", bar_rows({way.name: way.mean_accepted for way in ways}, "tokens a round", 1.0)
    if len(tasks) > 1:
        ratios = {way.name: [way.task(task).ratio for task in tasks] for way in ways}
        yield "Speed by task", heat_map(tasks, ratios, "times autoregression; framed: the fastest for a task")
        accepted = {way.name: [way.task(task).mean_accepted for task in tasks] for way in ways}
        yield "Mean accepted by task", heat_map(tasks, accepted, "tokens a round; framed: the most for a task")
    deepest = max(len(way.acceptance_by_depth) for way in ways)
    if deepest:
        shares = {way.name: depth_shares(way, deepest) for way in ways if way.acceptance_by_depth}
        depths = [str(depth) for depth in range(1, deepest + 1)]
        yield "Acceptance by depth", heat_map(depths, shares, "share of the rounds that drafted so deep")
    allowed = {way.name: way.costs.allowed_tokens_per_second for way in ways}
    if any(allowed.values()):
        yield "What costs allow", bar_rows(allowed, "tokens per second, without prefill")
    memory = {way.name: way.memory.get("resident", 0) / 1e6 for way in ways}
    if any(memory.values()):
        yield "Memory", bar_rows(memory, "MB resident")


def _tables(comparison: ComparisonReport) -> Iterator[tuple[str, Table]]:
    yield "All ways", ways_table(comparison)
    yield (
        "Settings",
        [("way", "settings of the recipe"), *((way.name, " ".join(way.settings)) for way in comparison.ways)],
    )
    if comparison.dropped:
        yield DROPPED.capitalize(), dropped_table(comparison)
    yield "Left out", [("way", "why"), *((each.name, each.reason) for each in comparison.refused)]
    if comparison.published["tables"]:
        title = f"{comparison.published['benchmark']}: {comparison.published['settings']}"
        yield f"{title}; {comparison.published['source']}", published_table(comparison)
