"""Text tables of a report for a terminal."""

from collections.abc import Callable, Iterator, Sequence

from speccompile.measure.bench.cost_model import CostModel
from speccompile.measure.bench.groups import Group
from speccompile.measure.bench.mode import ModeStatistics, Percentiles
from speccompile.measure.bench.report import Report
from speccompile.measure.bench.roofline import Roofline

Row = tuple[str, Callable[[ModeStatistics], float | None], str]


def _at(percentiles: Percentiles | None, name: str) -> float | None:
    return None if percentiles is None else getattr(percentiles, name) * 1e3


_ENCODE = "encode ms"
"""Title of the row that is left out where no prompt has pictures."""
ROWS: tuple[Row, ...] = (
    ("tokens/s", lambda way: way.tokens_per_second, ".1f"),
    ("tokens/s without prefill", lambda way: way.decode_tokens_per_second, ".1f"),
    ("mean accepted", lambda way: way.mean_accepted, ".2f"),
    ("mean draft length", lambda way: way.mean_draft_length, ".2f"),
    ("new tokens", lambda way: way.new_tokens, "d"),
    ("rounds", lambda way: way.rounds, "d"),
    ("rounds with drafts", lambda way: way.drafting_rounds, "d"),
    ("first token ms", lambda way: way.first_token_seconds * 1e3, ".2f"),
    ("inter-token ms, p50", lambda way: _at(way.inter_token_seconds, "p50"), ".2f"),
    ("inter-token ms, p90", lambda way: _at(way.inter_token_seconds, "p90"), ".2f"),
    ("inter-token ms, p99", lambda way: _at(way.inter_token_seconds, "p99"), ".2f"),
    ("round ms, p50", lambda way: _at(way.round_seconds, "p50"), ".2f"),
    ("round ms, p99", lambda way: _at(way.round_seconds, "p99"), ".2f"),
    (_ENCODE, lambda way: None if way.encode_seconds is None else way.encode_seconds * 1e3, ".2f"),
    ("prefill ms", lambda way: way.prefill_seconds * 1e3, ".2f"),
    ("verify ms", lambda way: way.verify_seconds * 1e3, ".2f"),
    ("draft ms", lambda way: way.draft_seconds * 1e3, ".2f"),
    ("host ms", lambda way: way.host_seconds * 1e3, ".2f"),
    ("host us a round", lambda way: way.host_microseconds_per_round, ".1f"),
)


def write_table(report: Report) -> str:
    """Return the report as text: both modes side by side, limits from costs and memory, then speculation's results."""
    parts = [_head(report), _ways(report), _groups(report.groups)]
    parts += [_costs(report.costs)] if report.costs else []
    parts += [_roofline(report.roofline)] if report.roofline else []
    parts += [_speculation(report)]
    return "\n\n".join("\n".join(lines) for part in parts if (lines := list(part)))


def head_lines(report: Report) -> list[str]:
    """Return the lines that describe the run and the machine."""
    return list(_head(report))


def _head(report: Report) -> Iterator[str]:
    threads = "" if report.threads is None else f", threads: {report.threads}"
    kernels = "" if report.kernels is None else f", kernels: {report.kernels}"
    yield f"{report.bundle} on {report.engine}, CPUs: {report.cpus}{threads}{kernels}"
    runs = f"{report.prompts} prompts, up to {report.max_new_tokens} new tokens, {report.repeats} repeats"
    yield f"{runs}; medians over prompts and repeats, milliseconds per generation"
    yield ", ".join(_choices(report))
    if report.conversation is not None:
        yield f"questions are written as {report.conversation.replace('_', ' ')}"
    if report.pictures is not None:
        yield report.pictures.describe()
    if report.full_prompts:
        yield f"{report.full_prompts} prompts ended where the bundle's buffers were full"
    sizes = (f", {name} {size / 1e6:.1f} MB" for name, size in (report.memory or {}).items())
    yield f"opened in {report.load_seconds:.2f} s{''.join(sizes)}"
    yield ", ".join(f"{name} {version}" for name, version in report.versions.items())


def _choices(report: Report) -> Iterator[str]:
    """Yield the sampling options and the verification method."""
    yield f"{report.decoding} decoding at temperature {report.temperature:g}"
    if report.seed is not None:
        yield f"seed {report.seed}"
    yield from (f"{name} {value:g}" for name, value in report.limits.items())
    if report.speculative is not None:
        yield f"verified by {report.method}" + ("" if report.exact else ": APPROXIMATE, the output may change")
        yield f"{report.draft_length} draft length"


def _ways(report: Report) -> Iterator[str]:
    ways = {"speculative": report.speculative, "autoregressive": report.autoregressive}
    shown = {title: way for title, way in ways.items() if way is not None}
    yield f"{'':<26}" + "".join(f"{title:>16}" for title in shown)
    for title, value, form in ROWS:
        if title == _ENCODE and all(value(way) is None for way in shown.values()):
            continue
        yield f"{title:<26}" + "".join(f"{cell(value(way), form):>16}" for way in shown.values())


def _groups(groups: Sequence[Group]) -> Iterator[str]:
    if not groups:
        return
    yield "means over questions, prefill included"
    yield f"{'':<26}{'questions':>10}{'speculative':>16}{'autoregressive':>16}{'speedup':>10}{'accepted':>10}"
    for each in groups:
        ours = each.speculative
        yield (
            f"{each.group:<26}{each.prompts:>10}{cell(ours.tokens_per_second if ours else None, '.1f'):>16}"
            f"{each.autoregressive.tokens_per_second:>16.1f}{cell(each.speedup, '.2f'):>10}"
            f"{cell(ours.mean_accepted if ours else None, '.2f'):>10}"
        )


def _costs(costs: CostModel) -> Iterator[str]:
    yield f"costs over {costs.context} tokens of context"
    yield f"{'window width':<26}" + "".join(f"{point.width:>8}" for point in costs.verify)
    yield f"{'verify ms':<26}" + "".join(f"{point.seconds * 1e3:>8.2f}" for point in costs.verify)
    yield f"{'over a window of one':<26}" + "".join(f"{point.ratio:>8.2f}" for point in costs.verify)
    draft = "" if costs.draft_seconds is None else f"draft {costs.draft_seconds * 1e3:.2f} ms, "
    yield f"{draft}host {costs.host_seconds * 1e6:.1f} us a round"
    if costs.break_even is not None:
        even = costs.break_even
        rate = "" if even.acceptance_rate is None else f", an acceptance rate of {even.acceptance_rate:.2f}"
        yield f"speculation breaks even at a mean accepted of {even.mean_accepted:.2f}{rate}"
    if costs.allowed_tokens_per_second is not None:
        yield (
            f"mean accepted and these costs allow {costs.allowed_tokens_per_second:.1f} tokens/s without prefill; "
            f"{cell(costs.reached, '.0%')} of it was reached"
        )


def _roofline(roofline: Roofline) -> Iterator[str]:
    memory = roofline.bandwidth
    yield (
        f"memory: {memory.bytes_per_second / 1e9:.1f} GB/s, reading {memory.buffer_bytes / 1e6:.0f} MB, "
        f"threads: {memory.threads}"
    )
    for title, way in (("speculative", roofline.speculative), ("autoregressive", roofline.autoregressive)):
        if way is not None:
            yield (
                f"{title:<26}{way.bytes_per_token / 1e6:.2f} MB a token, {cell(way.share, '.0%')} of the bandwidth; "
                f"a round: weights {way.weight_bytes / 1e6:.2f} MB, caches {way.cache_bytes / 1e6:.2f} MB"
            )


def _speculation(report: Report) -> Iterator[str]:
    if report.speculative is None:
        yield "the bundle has no drafter: autoregressive only"
        return
    yield f"speedup {cell(report.speedup, '.2f')}, without prefill {cell(report.decode_speedup, '.2f')}"
    yield ""
    depths = report.acceptance_by_depth
    yield f"{'draft at depth':<26}" + "".join(f"{depth.depth:>6}" for depth in depths)
    yield f"{'rounds so deep':<26}" + "".join(f"{depth.rounds:>6}" for depth in depths)
    yield f"{'accepted':<26}" + "".join(f"{cell(depth.accepted, '.2f'):>6}" for depth in depths)
    after = (cell(depth.accepted_after_previous, ".2f") for depth in depths)
    yield f"{'hit rate after previous':<26}" + "".join(f"{shown:>6}" for shown in after)
    yield ""
    yield from equality_lines(report)


def equality_lines(report: Report) -> Iterator[str]:
    """Yield the number of prompts with equal tokens in both modes, and the first divergence of every other prompt."""
    if report.equal_prompts is None:
        yield "drafts are drawn: the two ways give other tokens, by the same probabilities"
        return
    yield f"same tokens on {report.equal_prompts} of {report.prompts} prompts"
    for found in report.differences:
        turn = f", turn {found.turn}" if report.conversation is not None else ""
        yield (
            f"prompt {found.prompt}{turn}: new token {found.index} is {found.speculative} speculatively "
            f"and {found.autoregressive} autoregressively"
        )


def cell(value: float | None, form: str) -> str:
    """Return the number in this format, or a dash for None."""
    return "-" if value is None else format(value, form)
