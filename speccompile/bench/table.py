"""A report as people read it."""

from collections.abc import Callable, Iterator

from speccompile.bench.report import Report, Way

Row = tuple[str, Callable[[Way], float | None], str]

ROWS: tuple[Row, ...] = (
    ("tokens/s", lambda way: way.tokens_per_second, ".1f"),
    ("tokens/s without prefill", lambda way: way.decode_tokens_per_second, ".1f"),
    ("mean accepted", lambda way: way.mean_accepted, ".2f"),
    ("new tokens", lambda way: way.new_tokens, "d"),
    ("rounds", lambda way: way.rounds, "d"),
    ("prefill ms", lambda way: way.prefill_seconds * 1e3, ".2f"),
    ("verify ms", lambda way: way.verify_seconds * 1e3, ".2f"),
    ("draft ms", lambda way: way.draft_seconds * 1e3, ".2f"),
    ("host ms", lambda way: way.host_seconds * 1e3, ".2f"),
    ("host us a round", lambda way: way.host_microseconds_per_round, ".1f"),
)


def write_table(report: Report) -> str:
    """The report in lines: both ways side by side, then what only speculation has."""
    return "\n".join([*_head(report), "", *_ways(report), "", *_speculation(report)])


def _head(report: Report) -> Iterator[str]:
    threads = report.threads or "the engine's own choice"
    yield f"{report.bundle} on {report.engine}, CPUs: {report.cpus}, threads: {threads}"
    runs = f"{report.prompts} prompts, up to {report.max_new_tokens} new tokens, {report.repeats} repeats"
    yield f"{runs}; medians over prompts and repeats, milliseconds per generation"
    yield ", ".join(_choices(report))
    yield ", ".join(f"{name} {version}" for name, version in report.versions.items())


def _choices(report: Report) -> Iterator[str]:
    """How tokens were chosen, and drafts accepted."""
    yield f"{report.decoding} decoding at temperature {report.temperature:g}"
    if report.seed is not None:
        yield f"seed {report.seed}"
    yield from (f"{name} {value:g}" for name, value in report.limits.items())
    if report.speculative is not None:
        yield f"verified by {report.method}" + ("" if report.exact else ": APPROXIMATE, the output may change")


def _ways(report: Report) -> Iterator[str]:
    ways = {"speculative": report.speculative, "autoregressive": report.autoregressive}
    shown = {title: way for title, way in ways.items() if way is not None}
    yield f"{'':<26}" + "".join(f"{title:>16}" for title in shown)
    for title, value, form in ROWS:
        yield f"{title:<26}" + "".join(f"{_cell(value(way), form):>16}" for way in shown.values())


def _speculation(report: Report) -> Iterator[str]:
    if report.speculative is None:
        yield "the bundle has no drafter: autoregressive only"
        return
    yield f"speedup {_cell(report.speedup, '.2f')}, without prefill {_cell(report.decode_speedup, '.2f')}"
    yield ""
    depths = report.acceptance_by_depth
    yield f"{'draft at depth':<26}" + "".join(f"{depth.depth:>6}" for depth in depths)
    yield f"{'accepted':<26}" + "".join(f"{depth.accepted:>6.2f}" for depth in depths)
    after = (_cell(depth.accepted_after_previous, ".2f") for depth in depths)
    yield f"{'accepted after previous':<26}" + "".join(f"{cell:>6}" for cell in after)
    yield ""
    if report.equal_prompts is None:
        yield "drafts are drawn: the two ways give other tokens, by the same probabilities"
        return
    yield f"same tokens on {report.equal_prompts} of {report.prompts} prompts"
    for found in report.differences:
        yield (
            f"prompt {found.prompt}: new token {found.index} is {found.speculative} speculatively "
            f"and {found.autoregressive} autoregressively"
        )


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
