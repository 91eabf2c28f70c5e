"""HTML page of a training's curves."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from speccompile.measure.bench.html import Table, make_html
from speccompile.measure.bench.plots import COLOURS, bar_chart, line_chart

Line = Mapping[str, Any]
Curve = list[tuple[float, float]]

SMOOTHING = 20
"""Share of a curve's points, as one in so many, over which the smoothed curve is about averaged."""


def make_page(title: str, lines: Sequence[Line]) -> str:
    """Return the page's HTML. lines: the objects of curves.jsonl."""
    steps = [line for line in lines if line["kind"] == "steps"]
    evaluations = [line for line in lines if line["kind"] == "evaluation"]
    return make_html(
        title, f"{title}: training", lead=list(_lead(evaluations)), head=list(_head(steps)), notes=[],
        plots=dict(_plots(steps, evaluations)), tables={"Evaluations": _table(evaluations)} if evaluations else {},
    )  # fmt: skip


def _lead(evaluations: Sequence[Line]) -> Iterator[str]:
    if evaluations:
        best, first = max(evaluations, key=lambda line: line["score"]), evaluations[0]
        before = f"; {first['score']:.3f} at step {first['step']}" if first is not best else ""
        yield f"best: step {best['step']}, {best['score']:.3f} tokens a round{before}"


def _head(steps: Sequence[Line]) -> Iterator[str]:
    if steps:
        last = steps[-1]
        yield f"{last['step']} steps in {last['elapsed']:.0f} s, loss {last['loss']:.3f}"


def _plots(steps: Sequence[Line], evaluations: Sequence[Line]) -> Iterator[tuple[str, str]]:
    if steps:
        yield "Loss", _loss(steps, evaluations)
    if evaluations:
        yield "Score", line_chart({"score": _curve(evaluations, "score")}, "tokens a round, on held-out text", "step")
        yield from _depths_over_steps(evaluations)
        yield from _by_depth(evaluations)
    names = list(dict.fromkeys(name for line in steps for name in line["shown"]))
    for group, members in _groups(names).items():
        rows = {
            _member(name): [(line["step"], line["shown"][name]) for line in steps if name in line["shown"]]
            for name in members
        }
        smooth = {name: _smooth(row) for name, row in rows.items()}
        yield f"{_title(group)}, of training samples", line_chart(smooth, "mean, smoothed", "step")
    if steps:
        yield (
            "Learning rate",
            line_chart({"rate": _curve(steps, "learning_rate")}, "highest of the optimizers'", "step"),
        )
        norms = _curve(steps, "gradient_norm")
        yield "Gradient", line_chart({"norm": _smooth(norms)}, "norm before clipping", "step", faint={"norm": norms})


def _loss(steps: Sequence[Line], evaluations: Sequence[Line]) -> str:
    """Plot the loss of training samples, smoothed, and of the held-out samples where it was measured."""
    curve = _curve(steps, "loss")
    held_out = [(line["step"], loss) for line in evaluations if (loss := line["figures"].get("loss")) is not None]
    rows = {"training": _smooth(curve)} | ({"held out": held_out} if held_out else {})
    return line_chart(rows, "mean, smoothed", "step", faint={"training": curve})


def _depths_over_steps(evaluations: Sequence[Line]) -> Iterator[tuple[str, str]]:
    """Yield a plot of every list of shares by depth, with one curve per depth, where several evaluations have it."""
    for name in _OVER_STEPS:
        found = [(line["step"], shares) for line in evaluations if (shares := line["figures"].get(name))]
        deepest = min(max((len(shares) for _, shares in found), default=0), len(COLOURS))
        rows = {
            f"depth {depth + 1}": [
                (step, shares[depth]) for step, shares in found if depth < len(shares) and shares[depth] is not None
            ]
            for depth in range(deepest)
        }
        if len(found) > 1:
            yield f"{_title(name)}, over steps", line_chart(rows, "share of held-out places", "step")


_OVER_STEPS = ("accepted_at_depth", "full")
"""Figures of an evaluation with one share per depth whose course is plotted."""
_TITLES = {
    "accepted_at_depth": "Acceptance of sampled drafts",
    "accepted": "Acceptance of sampled drafts",
    "full": "All drafts up to a depth are right",
    "cond": "A draft is right where all before it are",
    "right": "A draft is right",
}
"""Figure, or group of metrics -> title of its plot; the others' names are their titles."""


def _title(name: str) -> str:
    return _TITLES.get(name, name.replace("_", " ").capitalize())


def _member(name: str) -> str:
    """Return the name of a metric within its group: "depth 2" for "loss/2"."""
    member = name.partition("/")[2] or name
    return f"depth {member}" if member.isdigit() else member


def _curve(lines: Sequence[Line], key: str) -> Curve:
    return [(line["step"], line[key]) for line in lines]


def _smooth(curve: Curve) -> Curve:
    """Return the exponential moving average of a curve, without the bias of its beginning."""
    keep = 1 - 1 / max(len(curve) / SMOOTHING, 1)
    total = weight = 0.0
    smoothed = []
    for step, value in curve:
        total, weight = keep * total + value, keep * weight + 1
        smoothed.append((step, total / weight))
    return smoothed


def _groups(names: Sequence[str]) -> dict[str, list[str]]:
    """Group names by the part before the slash, at most one per colour in a group."""
    groups: dict[str, list[str]] = {}
    for name in names:
        members = groups.setdefault(name.partition("/")[0], [])
        if len(members) < len(COLOURS):
            members.append(name)
    return groups


def _by_depth(evaluations: Sequence[Line]) -> Iterator[tuple[str, str]]:
    """Yield plots of list-valued figures, for the first, the best and the last evaluation."""
    best = max(evaluations, key=lambda line: line["score"])
    chosen = {f"step {line['step']}": line["figures"] for line in (evaluations[0], best, evaluations[-1])}
    for name, value in evaluations[-1]["figures"].items():
        if name == "places" or not _is_by_depth(value):
            continue
        rows = {step: figures[name] for step, figures in chosen.items() if len(figures.get(name, ())) == len(value)}
        depths = [str(depth) for depth in range(1, len(value) + 1)]
        yield _title(name), bar_chart(depths, rows, "by depth")


def _is_by_depth(value: Any) -> bool:
    """Return whether a figure has a number for every depth."""
    return isinstance(value, list) and bool(value) and all(isinstance(each, int | float) for each in value)


def _table(evaluations: Sequence[Line]) -> Table:
    """Return a table of all evaluations with their numeric figures."""
    figures = evaluations[-1]["figures"].items()
    names = [name for name, value in figures if isinstance(value, int | float) and name not in _OF_THE_ROW]
    rows = [
        (str(line["step"]), f"{line['elapsed']:.0f}", f"{line['score']:.3f}",
         *(_cell(line["figures"].get(name)) for name in names))
        for line in evaluations
    ]  # fmt: skip
    return [("step", "seconds", "tokens a round", *(name.replace("_", " ") for name in names)), *rows]


_OF_THE_ROW = ("step", "seconds")
"""Figures of an evaluation that its line has as well, which begin its row of the table."""


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.4g}"
