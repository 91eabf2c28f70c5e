"""HTML page of a training's curves."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from speccompile.measure.bench.html import Table, make_html
from speccompile.measure.bench.plots import COLOURS, bar_chart, line_chart

Line = Mapping[str, Any]


def make_page(title: str, lines: Sequence[Line]) -> str:
    """Return the page's HTML. lines: the objects of curves.jsonl."""
    steps = [line for line in lines if line["kind"] == "steps"]
    judged = [line for line in lines if line["kind"] == "evaluation"]
    return make_html(
        title, f"{title}: training", head=list(_head(steps, judged)), notes=[], plots=dict(_plots(steps, judged)),
        tables={"Evaluations": _table(judged)} if judged else {},
    )  # fmt: skip


def _head(steps: Sequence[Line], judged: Sequence[Line]) -> Iterator[str]:
    if steps:
        last = steps[-1]
        yield f"{last['step']} steps in {last['elapsed']:.0f} s, loss {last['loss']:.3f}"
    if judged:
        best = max(judged, key=lambda line: line["score"])
        yield f"best: step {best['step']}, {best['score']:.3f} tokens a round"


def _plots(steps: Sequence[Line], judged: Sequence[Line]) -> Iterator[tuple[str, str]]:
    if steps:
        yield "Loss", _over_steps({"loss": steps}, "loss", "mean of what was learnt")
    if judged:
        yield "Score", _over_steps({"score": judged}, "score", "tokens a round, on held-out text")
        yield from _by_depth(judged)
    names = list(dict.fromkeys(name for line in steps for name in line["shown"]))
    for group, members in _groups(names).items():
        rows = {
            name: [(line["step"], line["shown"][name]) for line in steps if name in line["shown"]] for name in members
        }
        yield f"{group}, of what is learnt", line_chart(rows, "mean", "step")
    if steps:
        yield "Learning rate", _over_steps({"learning rate": steps}, "learning_rate", "highest of the optimizers'")
        yield "Gradient", _over_steps({"norm": steps}, "gradient_norm", "norm before clipping")


def _groups(names: Sequence[str]) -> dict[str, list[str]]:
    """Group names by the part before the slash, at most one per colour in a group."""
    groups: dict[str, list[str]] = {}
    for name in names:
        members = groups.setdefault(name.partition("/")[0], [])
        if len(members) < len(COLOURS):
            members.append(name)
    return groups


def _by_depth(judged: Sequence[Line]) -> Iterator[tuple[str, str]]:
    """Yield plots of list-valued figures, for the first, the best and the last evaluation."""
    best = max(judged, key=lambda line: line["score"])
    chosen = {f"step {line['step']}": line["figures"] for line in (judged[0], best, judged[-1])}
    for name, value in judged[-1]["figures"].items():
        if not isinstance(value, list) or not all(isinstance(each, int | float) for each in value):
            continue
        rows = {step: figures[name] for step, figures in chosen.items() if len(figures.get(name, ())) == len(value)}
        depths = [str(depth) for depth in range(1, len(value) + 1)]
        yield name.replace("_", " ").capitalize(), bar_chart(depths, rows, "by depth")


def _over_steps(rows: Mapping[str, Sequence[Line]], key: str, title: str) -> str:
    return line_chart({name: [(line["step"], line[key]) for line in row] for name, row in rows.items()}, title, "step")


def _table(judged: Sequence[Line]) -> Table:
    """Return a table of all evaluations with their numeric figures."""
    names = [name for name, value in judged[-1]["figures"].items() if isinstance(value, int | float)]
    rows = [
        (str(line["step"]), f"{line['elapsed']:.0f}", f"{line['score']:.3f}",
         *(_cell(line["figures"].get(name)) for name in names))
        for line in judged
    ]  # fmt: skip
    return [("step", "seconds", "tokens a round", *(name.replace("_", " ") for name in names)), *rows]


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.4g}"
