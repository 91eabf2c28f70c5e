"""Text tables of a comparison for a terminal."""

from collections.abc import Callable, Iterator, Sequence

from speccompile.measure.bench.table import cell
from speccompile.measure.compare.report import TIME, ComparisonReport, DroppedMethod, MethodReport

Table = list[tuple[str, ...]]
"""Rows of cell texts; the first row is the header."""

MOST_REASON = 160
"""Maximum length of a refusal's reason in a row, in characters."""

Column = tuple[str, Callable[[MethodReport], str]]


def _allowed(method: MethodReport) -> str:
    return cell(method.costs.allowed_tokens_per_second, ".0f")


def _break_even(method: MethodReport) -> str:
    return cell(method.costs.break_even.mean_accepted if method.costs.break_even else None, ".2f")


def _memory(method: MethodReport) -> str:
    return cell(method.memory["resident"] / 1e6 if "resident" in method.memory else None, ".0f")


def _tokens(method: MethodReport) -> str:
    if method.equal_prompts is None:
        return "drawn" if method.drafts else "-"
    prompts = method.tasks[-1].prompts
    equal = "all" if method.equal_prompts == prompts else f"{method.equal_prompts} of {prompts}"
    return equal if method.exact else f"{equal}, approximate"


COLUMNS: tuple[Column, ...] = (
    ("method", lambda method: method.name),
    ("drafts", lambda method: str(method.drafts)),
    ("accepted", lambda method: cell(method.mean_accepted, ".2f")),
    ("tokens/s", lambda method: cell(method.tokens_per_second, ".1f")),
    ("ratio", lambda method: cell(method.ratio, ".2f")),
    ("decoding", lambda method: cell(method.decode_ratio, ".2f")),
    ("breaks even", _break_even),
    ("allowed", _allowed),
    ("MB", _memory),
    ("same tokens", _tokens),
)

DROPPED_COLUMNS: tuple[tuple[str, Callable[[DroppedMethod], str]], ...] = (
    ("method", lambda method: method.name),
    ("prompts", lambda method: str(method.prompts)),
    ("accepted", lambda method: cell(method.mean_accepted, ".2f")),
    ("tokens/s", lambda method: cell(method.tokens_per_second, ".1f")),
    ("ratio", lambda method: cell(method.ratio, ".2f")),
    ("at most", lambda method: cell(method.ratio_at_most, ".2f")),
    ("the best had", lambda method: f"{method.best_ratio:.2f} ({method.best})"),
)

DROPPED = "dropped early: the fastest neither overall nor on any task, even at the most that they may reach"

MEANING = (
    "accepted: tokens a round, the bonus token included; ratio: of tokens/s to autoregression beside it, prefill "
    "included; decoding: without it",
    "breaks even: the mean accepted at which drafting pays; allowed: tokens/s without prefill that measured costs "
    "allow; MB: resident",
)


def write_table(comparison: ComparisonReport) -> str:
    """Return the comparison as text: the run, all methods (best first), by task, by depth, dropped and refused ones,
    published figures."""
    parts: list[list[str]] = [
        [*head_lines(comparison), *incomplete_lines(comparison)],
        [*aligned(methods_table(comparison)), *MEANING],
    ]
    if len(comparison.tasks) > 1:
        parts.append(["ratio (accepted), by task; the best ratio has a star", *aligned(tasks_table(comparison))])
    if depths := depths_table(comparison):
        parts.append(["share of rounds that accepted the draft at a depth, of those so deep", *aligned(depths)])
    if comparison.dropped:
        parts.append([DROPPED, *aligned(dropped_table(comparison))])
    parts.append(list(refusal_lines(comparison)))
    parts.append(list(published_lines(comparison)))
    parts.append(list(difference_lines(comparison)))
    return "\n\n".join("\n".join(part) for part in parts if part)


def head_lines(comparison: ComparisonReport) -> list[str]:
    """Return the lines that describe the run and the machine."""
    options = comparison.options
    kernels = "" if comparison.kernels is None else f", kernels: {comparison.kernels}"
    threads = "" if comparison.threads is None else f", threads: {comparison.threads}"
    where = comparison.processor or "an unknown processor"
    given = {name: value for name, value in options.items() if name not in _SAID}
    sampling = "".join(f", {name.replace('_', ' ')} {value:g}" for name, value in given.items())
    passes = "1 pass" if options["repeats"] == 1 else f"{options['repeats']} passes"
    lines = [
        f"{comparison.recipe} on {comparison.engine}, {where}, CPUs: {comparison.cpus}{threads}{kernels}",
        f"{options['prompts']} prompts, up to {options['max_new_tokens']} new tokens, {passes} "
        f"through all methods; {options['decoding']} decoding{sampling}, {options['draft_length']} draft length",
    ]
    if comparison.conversation is not None:
        lines.append(f"questions are written as {comparison.conversation.replace('_', ' ')}")
    if comparison.pictures is not None:
        lines.append(comparison.pictures.describe())
    lines.append(", ".join(f"{name} {version}" for name, version in comparison.versions.items()))
    return lines


def incomplete_lines(comparison: ComparisonReport) -> Iterator[str]:
    """Yield what an interrupted comparison lacks."""
    if not comparison.complete:
        passes = f"{min(method.passes for method in comparison.ways)} of {comparison.options['repeats']} passes"
        why = "the time is up (--minutes)" if comparison.ended == TIME else comparison.ended
        yield f"INCOMPLETE, {why}: every method below has at least {passes}"


_SAID = ("prompts", "max_new_tokens", "repeats", "decoding", "draft_length")


def methods_table(comparison: ComparisonReport) -> Table:
    """Return all measured methods, the best first."""
    return [tuple(title for title, _ in COLUMNS)] + [
        tuple(show(method) for _, show in COLUMNS) for method in comparison.ways
    ]


def dropped_table(comparison: ComparisonReport) -> Table:
    """Return the methods that were dropped early, the best first; only a header without any."""
    rows = [tuple(show(method) for _, show in DROPPED_COLUMNS) for method in comparison.dropped]
    return [tuple(title for title, _ in DROPPED_COLUMNS), *rows]


def tasks_table(comparison: ComparisonReport) -> Table:
    """Return ratio and mean accepted by task."""

    def shown(method: MethodReport, task: str) -> str:
        found = method.task(task)
        star = "*" if comparison.best[task] == method.name else " "
        return f"{found.ratio:.2f} ({cell(found.mean_accepted, '.2f')}){star}"

    rows = [(method.name, *(shown(method, task) for task in comparison.tasks)) for method in comparison.ways]
    return [("method", *(f"{task} " for task in comparison.tasks)), *rows]


def depths_table(comparison: ComparisonReport) -> Table:
    """Return acceptance by depth, to depth 10: greater depths do not fit a terminal and are in the JSON."""
    deepest = min(_DEEPEST, max((len(method.acceptance_by_depth) for method in comparison.ways), default=0))
    rows = [
        (method.name, *(cell(share, ".2f") for share in depth_shares(method, deepest)))
        for method in comparison.ways
        if method.acceptance_by_depth
    ]
    return [("method", *map(str, range(1, deepest + 1))), *rows] if rows else []


_DEEPEST = 10


def depth_shares(method: MethodReport, deepest: int) -> list[float | None]:
    """Return acceptance at depths 1 to `deepest`; None beyond the method's depth."""
    shares = [depth.accepted for depth in method.acceptance_by_depth[:deepest]]
    return shares + [None] * (deepest - len(shares))


def refusal_lines(comparison: ComparisonReport) -> Iterator[str]:
    """Yield a line for every method that could not be built or measured, or was not."""
    for each in comparison.refused:
        reason = each.reason if len(each.reason) <= MOST_REASON else f"{each.reason[:MOST_REASON]}..."
        yield f"{each.name}: left out: {reason}"
    for name in comparison.unmeasured:
        yield f"{name}: not measured: {comparison.ended}"


def published_lines(comparison: ComparisonReport) -> Iterator[str]:
    """Yield Spec-Bench's figures of the same methods, the source first."""
    tables = comparison.published["tables"]
    if not tables:
        return
    yield f"{comparison.published['benchmark']}, {comparison.published['settings']}"
    yield f"source: {comparison.published['source']}"
    yield from aligned(published_table(comparison))


def published_table(comparison: ComparisonReport) -> Table:
    """Return speedups by task and mean accepted per kind: the methods measured here, then the published figures."""
    tables = comparison.published["tables"]
    tasks = list(tables[0]["rows"][0]["speedup"])
    theirs: dict[str, Table] = {}
    for table in tables:
        place = f"{table['model']}, {table['device'].partition(' GPU')[0].removeprefix('a ')}"
        for row in table["rows"]:
            ratios = (f"{row['speedup'][task]:.2f}" for task in tasks)
            theirs.setdefault(row["kind"], []).append((row["method"], place, f"{row['mean_accepted']:.2f}", *ratios))
    rows = []
    for kind, published in theirs.items():
        rows += [_beside(method, tasks) for method in comparison.ways if method.kind == kind]
        rows += published
    return [("method", "on", "accepted", *tasks), *rows]


def _beside(method: MethodReport, tasks: Sequence[str]) -> tuple[str, ...]:
    """Return a method as a row of Spec-Bench; a dash for tasks that were not run."""
    ratios = {task.task: task.ratio for task in method.tasks}
    return method.name, "here", cell(method.mean_accepted, ".2f"), *(cell(ratios.get(task), ".2f") for task in tasks)


def difference_lines(comparison: ComparisonReport) -> Iterator[str]:
    """Yield the first token, per question, at which a method differs from autoregressive decoding."""
    every = [(method.name, method.differences) for method in comparison.ways]
    every += [(method.name, method.differences) for method in comparison.dropped]
    for name, differences in every:
        for found in differences:
            yield (
                f"{name}: prompt {found.prompt}, turn {found.turn}: new token {found.index} is "
                f"{found.speculative}, autoregressively {found.autoregressive}"
            )


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines of aligned columns: the first to the left, the other columns to the right."""
    if not rows:
        return []
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            [row[0].ljust(widths[0]), *(text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    ]
