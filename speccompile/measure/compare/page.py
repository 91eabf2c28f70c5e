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
    methods_table,
    published_table,
)


def write_page(comparison: ComparisonReport, path: Path) -> None:
    """Write the page atomically. Raise SpeccompileError if that fails."""
    write_html(make_page(comparison), path)


def make_page(comparison: ComparisonReport) -> str:
    """Return the page's HTML."""
    return make_html(
        comparison.recipe,
        f"{comparison.recipe}: drafting methods beside autoregressive decoding",
        lead=[*incomplete_lines(comparison), *_winners(comparison)],
        head=[],
        notes=list(difference_lines(comparison)),
        plots=dict(_plots(comparison)),
        tables=dict(_tables(comparison)),
        after=[*MEANING, *head_lines(comparison)],
    )


def _winners(comparison: ComparisonReport) -> Iterator[str]:
    """Yield who is the fastest, overall first and then on each of several tasks."""
    methods = {method.name: method for method in comparison.ways}
    tasks = comparison.tasks if len(comparison.tasks) > 2 else [OVERALL]
    for task in [OVERALL, *(each for each in tasks if each != OVERALL)]:
        name = comparison.best[task]
        ratio = methods[name].task(task).ratio
        yield f"{task}: {name} is fastest, {ratio:.2f} times autoregression"


def _plots(comparison: ComparisonReport) -> Iterator[tuple[str, str]]:
    methods, tasks = comparison.ways, comparison.tasks
    lost = comparison.dropped
    names = [method.name for method in lost]
    pale = f"; pale: dropped early, {_counts([method.prompts for method in lost])} prompts" if lost else ""
    measured: list[MethodReport | DroppedMethod] = sorted([*methods, *lost], key=lambda each: -each.ratio)
    speeds = {each.name: each.ratio for each in measured}
    yield "Speed", bar_rows(speeds, f"times autoregression{pale}", 1.0, names)
    accepted = {each.name: each.mean_accepted for each in measured}
    yield "Mean accepted", bar_rows(accepted, f"tokens a round{pale}", 1.0, names)
    if len(tasks) > 1:
        ratios = {method.name: [method.task(task).ratio for task in tasks] for method in methods}
        yield "Speed by task", heat_map(tasks, ratios, "times autoregression; framed: the fastest for a task")
        kept = {method.name: [method.task(task).mean_accepted for task in tasks] for method in methods}
        yield "Mean accepted by task", heat_map(tasks, kept, "tokens a round; framed: the most for a task")
    deepest = max(len(method.acceptance_by_depth) for method in methods)
    if deepest:
        shares = {method.name: depth_shares(method, deepest) for method in methods if method.acceptance_by_depth}
        depths = [str(depth) for depth in range(1, deepest + 1)]
        yield "Acceptance by depth", heat_map(depths, shares, "share of the rounds that drafted so deep")
    allowed = {method.name: method.costs.allowed_tokens_per_second for method in methods if method.drafts}
    if any(allowed.values()):
        yield "What costs allow", bar_rows(allowed, "tokens per second, without prefill")
    memory = {method.name: method.memory.get("resident", 0) / 1e6 for method in methods}
    if any(memory.values()):
        yield "Memory", bar_rows(memory, "MB resident")


def _tables(comparison: ComparisonReport) -> Iterator[tuple[str, Table]]:
    yield "Methods measured on all prompts", methods_table(comparison)
    yield DROPPED.capitalize(), dropped_table(comparison)
    measured: list[MethodReport | DroppedMethod] = [*comparison.ways, *comparison.dropped]
    settings = [(method.name, " ".join(method.settings) or "as the recipe has it") for method in measured]
    yield "Settings", [("method", "settings of the recipe"), *settings]
    unmeasured = [(name, f"not measured: {comparison.ended}") for name in comparison.unmeasured]
    yield "Left out", [("method", "why"), *((each.name, each.reason) for each in comparison.refused), *unmeasured]
    if comparison.published["tables"]:
        title = f"{comparison.published['benchmark']}: {comparison.published['settings']}"
        yield f"{title}; {comparison.published['source']}", published_table(comparison)


def _counts(numbers: Sequence[int]) -> str:
    """Return the range of some numbers as text."""
    low, high = min(numbers), max(numbers)
    return f"{low} to {high}" if low < high else f"{low}"
