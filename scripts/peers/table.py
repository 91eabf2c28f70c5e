"""The table of scripts/peers/run.py: a row a case, and how ours compare with the best peer of each column."""

from collections.abc import Callable, Sequence
from operator import itemgetter
from statistics import median
from typing import Any, Protocol

from common import Form

Measured = dict[str, Any]
HEAD = ("tokens/s", "first s", "prefill", "cpus", "resident MB", "anonymous MB", "load s", "alike")


class Case(Protocol):
    peer: str
    name: str
    form: Form
    threads: int
    drafts: int
    measured: list[Measured]
    failed: str

    @property
    def title(self) -> str: ...


def render(cases: Sequence[Case], ours: str, columns: Sequence[str]) -> str:
    """Return the table. alike: how many first tokens equal our float32's, by which a broken conversion is found."""
    reference = next((case.measured for case in cases if (case.peer, case.form.column) == (ours, "fp32")), [])
    lines = []
    for column in columns:
        for threads in sorted({case.threads for case in cases}):
            rows = [case for case in cases if (case.form.column, case.threads) == (column, threads)]
            if rows:
                head = _row(f"{column}, {threads} thread{'s' * (threads > 1)}", HEAD)
                lines += ["", head, *(line for case in rows for line in _lines(case, reference))]
                lines += _comparison(rows, ours)
                lines += _speculation(rows, ours)
    versions = {f"{case.peer} {case.measured[0]['version']}": None for case in cases if case.measured}
    return "\n".join([*lines, "", ", ".join(versions)])


def _row(title: str, values: Sequence[str]) -> str:
    return f"{title:<58}" + "".join(f"{value:>13}" for value in values)


def _lines(case: Case, reference: list[Measured]) -> list[str]:
    if not case.measured:
        return [f"{case.title}: {case.failed or 'not measured'}"]
    values = [
        format(_median(case, lambda one: one["tokens_per_second"]), ".1f"),
        format(_median(case, lambda one: one["first_token_seconds"]), ".2f"),
        format(_median(case, lambda one: one["prefill_tokens_per_second"]), ".0f"),
        format(_median(case, lambda one: one["cpus_busy"]), ".2f"),
        format(_median(case, lambda one: one["memory_megabytes"]["resident"]), ".0f"),
        format(_median(case, lambda one: one["memory_megabytes"]["anonymous"]), ".0f"),
        format(_median(case, lambda one: one["load_seconds"]), ".1f"),
        _alike(case.measured, reference),
    ]
    failed = [f"{case.title}: failed later: {case.failed}"] if case.failed else []
    return [_row(case.title, values), *_rounds(case), *failed]


def _rounds(case: Case) -> list[str]:
    """Return what only ours tell: the cost of a window of five, and speculation."""
    lines = []
    if "verify_milliseconds" in case.measured[0]:
        one, five = (_median(case, lambda each, w=width: each["verify_milliseconds"][w]) for width in "15")  # type: ignore[misc]
        lines.append(f"    a window of 1 / 5: {one:.1f} / {five:.1f} ms, {five / one:.2f}x")
    if "speculative" in case.measured[0]:
        speed = _median(case, lambda each: each["speculative"]["tokens_per_second"])
        accepted = _median(case, lambda each: each["speculative"]["mean_accepted"])
        same = sum(each["speculative"]["same_tokens"] for each in case.measured)
        lines.append(
            f"    speculative: {speed:.1f} tokens/s at a mean accepted of {accepted:.2f}, "
            f"the tokens of autoregression in {same} of {len(case.measured)}"
        )
    return lines


def _median(case: Case, value: Callable[[Measured], float]) -> float:
    return median(value(one) for one in case.measured)


def _alike(measured: list[Measured], reference: list[Measured]) -> str:
    if not reference:
        return "-"
    pairs = zip(measured, reference, strict=False)
    return format(median(_shared(one["token_ids"], other["token_ids"]) for one, other in pairs), ".0f")


def _shared(one: list[int], other: list[int]) -> int:
    return next((place for place, (a, b) in enumerate(zip(one, other, strict=True)) if a != b), len(one))


SPEEDS = {"tokens_per_second": "tokens/s", "prefill_tokens_per_second": "prefill"}


def _comparison(rows: list[Case], ours: str) -> list[str]:
    """Compare our first row of a column with the best peer's, for each of the two speeds."""
    mine, best = _best(rows, ours)
    if mine is None:
        return []
    lines = []
    for key, title in SPEEDS.items():
        if key in best:
            ratio = _median(mine, itemgetter(key)) / _median(best[key], itemgetter(key))
            lines.append(f"    {title}: ours {ratio:.2f}x the best peer's ({best[key].title})")
    return lines


def _speculation(rows: list[Case], ours: str) -> list[str]:
    """Return how every case that drafts compares with its own autoregression, and ours with the best of the peers."""
    plain = {(case.peer, case.name): case for case in rows if not case.drafts and case.measured}
    drafted = [case for case in rows if case.drafts and case.measured]
    lines = []
    for case in drafted:
        alone = plain.get((case.peer, case.name))
        facts = [f"{_speed(case):.1f} tokens/s"]
        if all(one.get("tokens_a_round") for one in case.measured):
            facts.append(f"{_median(case, itemgetter('tokens_a_round')):.2f} tokens a round")
        if alone is not None:
            facts.append(f"{_speed(case) / _speed(alone):.2f}x its own autoregression")
            pairs = list(zip(case.measured, alone.measured, strict=False))
            same = sum(one["token_ids"] == other["token_ids"] for one, other in pairs)
            facts.append(f"the same tokens in {same} of {len(pairs)}")
        lines.append(f"    {case.title}: {', '.join(facts)}")
    mine = next((case for case in drafted if case.peer == ours), None)
    peers = {"autoregression": plain.values(), "speculation": drafted}
    for title, others in peers.items():
        best = max((case for case in others if case.peer != ours), key=_speed, default=None)
        if mine is not None and best is not None:
            ratio = _speed(mine) / _speed(best)
            lines.append(f"    speculation: ours {ratio:.2f}x the best peer's {title} ({best.title})")
    return lines


def _speed(case: Case) -> float:
    return _median(case, itemgetter("tokens_per_second"))


def _best(rows: list[Case], ours: str) -> tuple[Case | None, dict[str, Case]]:
    """Return our first case of a column without a drafter, and for each of the two speeds the fastest such peer."""
    rows = [case for case in rows if case.measured and not case.drafts]
    mine = next((case for case in rows if case.peer == ours), None)
    peers = [case for case in rows if case.peer != ours]
    if not peers:
        return mine, {}
    return mine, {key: max(peers, key=lambda case: _median(case, itemgetter(key))) for key in SPEEDS}


def summary(cases: Sequence[Case], ours: str, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return what the page on other runtimes shows: for each column and number of threads our medians, and those of
    the fastest peer. Columns that we did not run are left out."""
    found = []
    for column in columns:
        for threads in sorted({case.threads for case in cases}):
            rows = [case for case in cases if (case.form.column, case.threads) == (column, threads)]
            mine, best = _best(rows, ours)
            if mine is None:
                continue
            one, five = (_median(mine, lambda each, w=width: each["verify_milliseconds"][w]) for width in "15")  # type: ignore[misc]
            found.append({
                "column": column, "threads": threads, "window_of_five": round(five / one, 3),
                **{
                    key: {"ours": round(_median(mine, itemgetter(key)), 1)}
                    | ({"best": round(_median(best[key], itemgetter(key)), 1), "peer": best[key].title} if best else {})
                    for key in SPEEDS
                },
            })  # fmt: skip
    return found
