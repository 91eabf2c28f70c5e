"""HTML page of a comparison: the fastest method per task, and the speed that costs allow."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from speccompile.measure.bench.groups import OVERALL
from speccompile.measure.bench.html import make_html, write_html
from speccompile.measure.bench.plots import bar_rows, heat_map
from speccompile.measure.compare.report import ComparisonReport, DroppedMethod, MethodReport
from speccompile.measure.compare.table import (
    DROPPED,
    MEANING,
    Table,
    depth_shares,
    difference_lines,
    dropped_table,
    head_lines,
    incomplete_lines,
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
        lead=[*incomplete_lines(comparison), *_winners(comparison)],
        head=[],
        notes=list(difference_lines(comparison)),
        plots=dict(_plots(comparison)),
        tables=dict(_tables(comparison)),
        after=[*MEANING, *head_lines(comparison)],
    )


def _winners(comparison: ComparisonReport) -> Iterator[str]:
    """Yield who is the fastest, overall first and then on each of several tasks."""
    ways = {way.name: way for way in comparison.ways}
    tasks = comparison.tasks if len(comparison.tasks) > 2 else [OVERALL]
    for task in [OVERALL, *(each for each in tasks if each != OVERALL)]:
        name = comparison.best[task]
        ratio = ways[name].task(task).ratio
        yield f"{task}: {name} is fastest, {ratio:.2f} times autoregression"


def _plots(comparison: ComparisonReport) -> Iterator[tuple[str, str]]:
    ways, tasks = comparison.ways, comparison.tasks
    lost = comparison.dropped
    names = [way.name for way in lost]
    pale = f"; pale: dropped early, {_counts([way.prompts for way in lost])} prompts" if lost else ""
    measured: list[MethodReport | DroppedMethod] = [*ways, *lost]
    speeds = {each.name: each.ratio for each in measured}
    yield "Speed", bar_rows(speeds, f"times autoregression{pale}", 1.0, names)
    accepted = {each.name: each.mean_accepted for each in measured}
    yield "Mean accepted", bar_rows(accepted, f"tokens a round{pale}", 1.0, names)
    if len(tasks) > 1:
        ratios = {way.name: [way.task(task).ratio for task in tasks] for way in ways}
        yield "Speed by task", heat_map(tasks, ratios, "times autoregression; framed: the fastest for a task")
        kept = {way.name: [way.task(task).mean_accepted for task in tasks] for way in ways}
        yield "Mean accepted by task", heat_map(tasks, kept, "tokens a round; framed: the most for a task")
    deepest = max(len(way.acceptance_by_depth) for way in ways)
    if deepest:
        shares = {way.name: depth_shares(way, deepest) for way in ways if way.acceptance_by_depth}
        depths = [str(depth) for depth in range(1, deepest + 1)]
        yield "Acceptance by depth", heat_map(depths, shares, "share of the rounds that drafted so deep")
    allowed = {way.name: way.costs.allowed_tokens_per_second for way in ways if way.drafts}
    if any(allowed.values()):
        yield "What costs allow", bar_rows(allowed, "tokens per second, without prefill")
    memory = {way.name: way.memory.get("resident", 0) / 1e6 for way in ways}
    if any(memory.values()):
        yield "Memory", bar_rows(memory, "MB resident")


def _tables(comparison: ComparisonReport) -> Iterator[tuple[str, Table]]:
    yield "Ways measured on all prompts", ways_table(comparison)
    yield DROPPED.capitalize(), dropped_table(comparison)
    measured: list[MethodReport | DroppedMethod] = [*comparison.ways, *comparison.dropped]
    settings = [(way.name, " ".join(way.settings) or "as the recipe has it") for way in measured]
    yield "Settings", [("way", "settings of the recipe"), *settings]
    yield "Left out", [("way", "why"), *((each.name, each.reason) for each in comparison.refused)]
    if comparison.published["tables"]:
        title = f"{comparison.published['benchmark']}: {comparison.published['settings']}"
        yield f"{title}; {comparison.published['source']}", published_table(comparison)


def _counts(numbers: Sequence[int]) -> str:
    """Return the range of some numbers as text."""
    low, high = min(numbers), max(numbers)
    return f"{low} to {high}" if low < high else f"{low}"
