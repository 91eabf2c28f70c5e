"""What is said of a training: lines of JSON, on the terminal, on the page, for TensorBoard."""

import json
import logging
import re
import sys
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from speccompile.errors import MissingPackageError
from speccompile.train.curves import POINTS, MetricsAccumulator, MetricsLog, read_curves
from speccompile.train.curves_page import _smooth, make_page
from tests.train.toy_training import run, run_until_it_fails


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self):
        self.seconds = 50.0

    def __call__(self):
        return self.seconds


class Page(HTMLParser):
    """Headings, and how many plots there are."""

    def __init__(self, text):
        super().__init__()
        self.inside, self.headings, self.plots, self.cells, self.loaded = "", [], 0, [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.inside = tag
        self.plots += tag == "svg"
        self.loaded += [value for name, value in attributes if name in ("src", "href")]

    def handle_data(self, data):
        if self.inside in ("h1", "h2") and data.strip():
            self.headings.append(data)
        if self.inside == "td" and data.strip():
            self.cells.append(data)


def interval(*steps):
    found = MetricsAccumulator()
    for step in steps:
        found.add(*step)
    return found


def test_lines_are_means_by_weight_and_count(tmp_path):
    curves = MetricsLog(tmp_path, "toy")
    curves.go_on(0, 0.0)
    one, other = interval((6.0, 2.0, 1.0), (2.0, 6.0, 3.0)), MetricsAccumulator()
    one.show({"accepted/1": (3.0, 4)})
    one.show({"accepted/1": (0.0, 2), "accepted/2": (0.0, 0)})
    other.show({"accepted/1": (6.0, 6)})
    curves.steps(one, [one.counts(), other.counts()], step=2, elapsed=1.5, rate=0.1)
    curves.evaluation(2.5, {"by_depth": [0.6, 0.4], "compiled": None}, step=2, elapsed=1.5, is_best=True)
    assert read_curves(tmp_path / "curves.jsonl") == [
        {"kind": "steps", "step": 2, "steps": 2, "elapsed": 1.5, "loss": 1.0, "learning_rate": 0.1,
         "gradient_norm": 2.0, "shown": {"accepted/1": 0.75}},
        {"kind": "evaluation", "step": 2, "elapsed": 1.5, "score": 2.5, "is_best": True,
         "figures": {"by_depth": [0.6, 0.4], "compiled": None}},
    ]  # fmt: skip


def test_every_step_is_told_once_also_where_a_training_goes_on(tmp_path):
    run_until_it_fails(tmp_path, save_every=1e9, with_curves=True)
    with (tmp_path / "curves.jsonl").open("a") as file:
        file.write('{"kind": "steps", "step": 1')  # as a kill leaves it
    assert len(read_curves(tmp_path / "curves.jsonl")) == 10
    run(tmp_path, with_curves=True, evaluate_every=1e9)  # from the beginning: nothing was saved
    lines = read_curves(tmp_path / "curves.jsonl")
    assert [line["step"] for line in lines if line["kind"] == "steps"] == list(range(1, 21))
    assert [line["step"] for line in lines if line["kind"] == "evaluation"] == [20]
    assert sum(line["steps"] for line in lines if line["kind"] == "steps") == 20


def test_lines_before_the_checkpoint_stay_as_they_are(tmp_path):
    run_until_it_fails(tmp_path, with_curves=True)
    before = (tmp_path / "curves.jsonl").read_bytes()
    run(tmp_path, with_curves=True)
    after = (tmp_path / "curves.jsonl").read_bytes()
    assert after.startswith(before)
    assert [json.loads(line)["step"] for line in after.splitlines()] == list(range(1, 21))


def test_a_long_training_has_as_many_lines_as_a_plot_shows(tmp_path):
    run(tmp_path, with_curves=True, steps=300)
    lines = read_curves(tmp_path / "curves.jsonl")
    assert len(lines) == POINTS
    assert {line["steps"] for line in lines} == {1, 2}
    assert sum(line["steps"] for line in lines) == lines[-1]["step"] == 300


def test_the_terminal_has_the_time_left(tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="speccompile")
    clock = Clock()
    curves = MetricsLog(tmp_path, "toy", clock=clock)
    curves.go_on(100, 0.5)  # half was done before: its time is not this process's
    for seconds, used in ((2, 0.55), (4, 0.61), (3, 0.7), (1, 0.71), (60, 1.0)):
        clock.seconds += seconds
        curves.log_line(120, used, "600 s", 2.34567)
    assert [record.getMessage() for record in caplog.records] == [
        "training: step 120, 61 % of 600 s, loss 2.346, 22 s left",
        "training: step 120, 70 % of 600 s, loss 2.346, 14 s left",
        "training: step 120, 100 % of 600 s, loss 2.346",
    ]


def test_the_page_has_all_curves_and_loads_nothing(tmp_path):
    run(tmp_path, with_curves=True, evaluate_every=0, scores={4: 2.5})
    text = (tmp_path / "curves.html").read_text()
    page = Page(text)
    assert page.headings == [
        "toy", "Loss", "Score", "By depth", "Loss, of training samples", "Learning rate", "Gradient", "Evaluations",
    ]  # fmt: skip
    assert page.plots == 6
    assert page.loaded == []
    assert "best: step 4, 2.500 tokens a round" in text
    assert page.cells.count("2.500") == 1
    assert len(re.findall(r"<polyline", text)) == 7  # two of them pale, behind those that smooth them


def test_no_column_of_the_evaluations_stands_twice():
    figures = {"step": 4, "seconds": 9.0, "simulated": 2.5, "simulated_rounds": 8}
    evaluation = {"kind": "evaluation", "step": 4, "elapsed": 7.0, "score": 2.5, "figures": figures}
    table = make_page("toy", [evaluation]).partition("Evaluations")[2]
    assert re.findall("<th[^>]*>(.*?)</th>", table) == [
        *("step", "seconds", "tokens a round"), *("simulated", "simulated rounds"),
    ]  # fmt: skip
    assert re.findall("<td[^>]*>(.*?)</td>", table) == ["4", "7", "2.500", "2.5", "8"]


def test_tensorboard_reads_the_same(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    curves = MetricsLog(tmp_path, "toy", tensorboard=True)
    curves.go_on(0, 0.0)
    one = interval((6.0, 2.0, 1.0))
    one.show({"accepted/1": (3.0, 4)})
    curves.steps(one, [one.counts()], step=7, elapsed=1.5, rate=0.1)
    curves.evaluation(2.5, {"by_depth": [0.5, 0.25]}, step=7, elapsed=1.5, is_best=True)
    curves.close()
    found = accumulator.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    scalars = {
        tag: [(each.step, round(each.value, 5)) for each in found.Scalars(tag)] for tag in found.Tags()["scalars"]
    }
    assert scalars == {
        "loss": [(7, 3.0)], "learning_rate": [(7, 0.1)], "gradient_norm": [(7, 1.0)], "shown/accepted/1": [(7, 0.75)],
        "score": [(7, 2.5)], "evaluation/by_depth/1": [(7, 0.5)], "evaluation/by_depth/2": [(7, 0.25)],
    }  # fmt: skip


def test_tensorboard_that_is_missing_is_one_error(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(MissingPackageError, match="without tensorboard, expected the package tensorboard") as caught:
        MetricsLog(tmp_path, "toy", tensorboard=True)
    assert caught.value.hint == "pip install tensorboard"


def test_smoothed_curves_keep_what_is_constant_and_follow_what_grows():
    assert _smooth([(step, 2.0) for step in range(200)]) == [(step, pytest.approx(2.0)) for step in range(200)]
    noisy = [(step, step + (-1) ** step * 5.0) for step in range(200)]
    smooth = _smooth(noisy)
    assert max(abs(value - step) for step, value in smooth[50:]) < 12
    jumps = [abs(after[1] - before[1]) for before, after in pairwise(smooth[50:])]
    assert max(jumps) < 2.5


def test_acceptance_by_depth_is_drawn_over_steps():
    lines = [
        {"kind": "evaluation", "step": step, "elapsed": 1.0, "score": 2.0,
         "figures": {"accepted_at_depth": [0.5 + step / 100, 0.25], "loss": 3.0}}
        for step in (10, 20)
    ]  # fmt: skip
    page = make_page("toy", lines)
    (plot,) = re.findall("Acceptance of sampled drafts, over steps</h2>\n(<svg.*?</svg>)", page, re.DOTALL)
    assert plot.count("<polyline") == 2
    assert "depth 2" in plot
    assert "Acceptance of sampled drafts, over steps" not in make_page("toy", lines[:1])
