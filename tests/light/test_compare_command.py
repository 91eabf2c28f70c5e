"""`speccompile compare` as a command: what goes to stdout and to stderr, Ctrl-C, and the live table."""

import io
import json
import sys
from functools import partial
from time import perf_counter

import pytest
from rich.console import Console

from speccompile.cli import main
from speccompile.cli.compare_live import live_table, make_table
from speccompile.cli.progress_output import BARS, PLAIN, choose
from speccompile.measure.compare.board import BUILDING, MEASURING
from speccompile.measure.compare.dropping import Verdict
from speccompile.measure.compare.report import ComparisonReport
from speccompile.measure.compare.run import run_comparison
from speccompile.progress import LOGGER
from tests.light.compare_example import Workshop, read_job


class Stopped(Workshop):
    """A workshop whose nth measurement, from 0, is interrupted."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    def measure(self, job):
        if len(self.measured) == self.at:
            raise KeyboardInterrupt
        return super().measure(job)


@pytest.fixture
def compare(make_recipe, tmp_path, monkeypatch, capsys):
    """Run the command with a workshop; return exit code, stdout and stderr."""
    source = read_job(make_recipe()).source
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))

    def run(workshop, *arguments, act=run_comparison):
        by_hand = partial(act, measure=workshop.measure, build=workshop.build)
        monkeypatch.setattr("speccompile.measure.compare.run.run_comparison", by_hand)
        given = ["compare", source.path, "--prompts", tmp_path / "questions.jsonl", "--no-cache"]
        given += ["--methods", tmp_path / "methods.yaml", "--output", tmp_path / "out", *arguments]
        with pytest.raises(SystemExit) as leaving:
            main([*map(str, given)])
        return leaving.value.code, *capsys.readouterr()

    return run


def rows(text):
    """Return the names of the methods in the order of the table."""
    table = next(part for part in text.split("\n\n") if part.startswith("method "))
    return [line.split()[0] for line in table.splitlines()[1:-2]]  # without the header and what the columns mean


def test_stdout_gets_the_table_and_stderr_a_line_a_method(compare):
    code, out, err = compare(Workshop(), "--repeats", 1)
    assert (code, rows(out)) == (0, ["drafter", "lookup", "autoregressive"])
    lines = err.splitlines()
    assert lines[0].startswith("comparing 3 methods on 2 prompts, at most 1 times, as long as a method may win: about ")
    assert [line.partition(":")[0] for line in lines[1:]] == ["autoregressive", "lookup", "drafter"]
    assert "lookup: 2.00 times autoregression, 10.0 tokens/s, 2.00 accepted (2 of 3 methods, about " in lines[2]
    assert lines[3].endswith("(3 of 3 methods)")


def test_quiet_leaves_the_table_alone(compare):
    code, out, err = compare(Workshop(), "--quiet")
    assert (code, rows(out), err) == (0, ["drafter", "lookup", "autoregressive"], "")


def test_a_busy_machine_is_told(compare, monkeypatch):
    def busy(job, **given):
        monkeypatch.setattr("os.getloadavg", lambda: (1e3, 0.0, 0.0))
        return run_comparison(job, **given)

    workshop = Workshop()
    code, _, err = compare(workshop, "--quiet", act=busy)
    assert (code, err.startswith("note: the machine is busy (load 1000.0 on ")) == (0, True)


def test_json_has_the_keys_of_the_help(compare, tmp_path, capsys):
    workshop = Workshop()
    code, out, err = compare(workshop, "--html", tmp_path / "x.html", "--json")
    printed = json.loads(out)
    assert (code, (tmp_path / "x.html").is_file(), "drafter  " in err) == (0, True, True)
    assert list(printed) == list(ComparisonReport.__dataclass_fields__)
    assert printed["complete"] is True
    assert printed["options"] == {
        "prompts": 2, "max_new_tokens": 128, "repeats": 3, "draft_length": "fixed", "decoding": "greedy",
        "temperature": 0.0,
    }  # fmt: skip
    with pytest.raises(SystemExit):
        main(["compare", "--help"])
    told = capsys.readouterr().out
    keys = {*printed, *printed["options"], *printed["ways"][0], *printed["ways"][0]["tasks"][0], *printed["published"]}
    assert [key for key in keys if key not in told] == []


def test_other_tokens_of_an_exact_method_are_an_error(compare):
    workshop = Workshop()
    workshop.wrong = True
    code, _, err = compare(workshop)
    assert code == 1
    assert "error: expected autoregression's tokens of every exact method, received others of drafter, lookup" in err


def test_an_interrupt_leaves_the_table_so_far(compare, tmp_path):
    code, out, err = compare(Stopped(2), "--html", tmp_path / "x.html")
    assert (code, rows(out)) == (130, ["lookup", "autoregressive"])
    marked = "INCOMPLETE, interrupted: every method below has at least 1 of 3 passes"
    assert (marked in out, "drafter: not measured: interrupted" in out) == (True, True)
    page = (tmp_path / "x.html").read_text()
    assert (marked in page, "not measured: interrupted" in page) == (True, True)
    assert f"interrupted; what was measured is kept in {tmp_path / 'out'}" in err
    assert "the same command goes on from it" in err
    code, out, _ = compare(Stopped(3), "--json")  # goes on
    printed = json.loads(out)
    assert (code, printed["complete"], printed["unmeasured"]) == (130, False, [])
    assert {method["name"]: method["passes"] for method in printed["ways"]} == {
        "drafter": 2,
        "lookup": 2,
        "autoregressive": 1,
    }
    code, out, _ = compare(Workshop())
    assert (code, "INCOMPLETE" in out) == (0, False)


class Slow(Workshop):
    """A workshop whose nth measurement, from 0, takes an hour."""

    def __init__(self, at: int, monkeypatch) -> None:
        super().__init__()
        self.at, self.patch = at, monkeypatch

    def measure(self, job):
        if len(self.measured) == self.at:
            later = perf_counter() + 3600
            self.patch.setattr("speccompile.measure.compare.limit.perf_counter", lambda: later)
        return super().measure(job)


def test_a_time_limit_leaves_the_table_so_far_and_names_what_was_not_measured(compare, monkeypatch):
    with monkeypatch.context() as clock:
        code, out, err = compare(Slow(1, clock), "--minutes", 10)
    assert (code, rows(out)) == (0, ["lookup", "autoregressive"])
    assert "INCOMPLETE, the time is up (--minutes): every method below has at least 1 of 3 passes" in out
    assert "drafter: not measured: time" in out
    assert "after 10 min it ends with the table so far (--minutes)" in err
    assert "note: the time is up; the same command goes on from " in err
    with monkeypatch.context() as clock:
        code, out, _ = compare(Slow(0, clock), "--json")  # its first measurement is that of drafter
        printed = json.loads(out)
    assert (code, printed["complete"], printed["ended"], printed["unmeasured"]) == (0, False, "time", [])
    assert [method["passes"] for method in printed["ways"]] == [1, 1, 1]
    code, out, err = compare(Workshop(), "--minutes", 0)
    assert (code, "INCOMPLETE" in out, "--minutes" in err) == (0, False, False)


def test_a_time_limit_before_any_figures_is_refused(compare, tmp_path):
    workshop = Workshop()
    code, out, err = compare(workshop, "--minutes", 1e-9)
    assert (code, out, workshop.built) == (2, "", [])
    assert "--minutes: received 1e-09, expected enough to build and measure the bundle without a drafter" in err


def test_an_interrupt_before_any_figures_has_no_table(compare):
    code, out, err = compare(Stopped(0))
    assert (code, out) == (130, "")
    assert err.splitlines()[-1].startswith("interrupted; ")


@pytest.fixture
def board(make_recipe):
    """Return rows of a comparison that measures its third method."""
    made = read_job(make_recipe()).board()
    figures = {"prompts": 2, "ratio": 1.0, "tokens_per_second": 5.0, "mean_accepted": 1.0}
    made.begin("autoregressive", MEASURING)
    made.event(figures)
    made.measured("autoregressive")
    made.begin("drafter", MEASURING)
    made.event(figures | {"ratio": 1.5, "tokens_per_second": 7.5})
    made.begin("lookup", BUILDING)
    return made


def test_the_live_table_is_sorted_and_says_why_a_method_was_dropped(board):
    def shown():
        console = Console(file=io.StringIO(), width=120)
        console.print(make_table(board))
        return console.file.getvalue()

    lines = shown().splitlines()
    names = [line.split()[0] for line in lines if line.split() and line.split()[0] in board.rows]
    assert names == ["drafter", "autoregressive", "lookup"]
    assert "1 of 3 methods, about" in shown()
    board.dropped("drafter", Verdict(6, 0.5, 0.7, "autoregressive", 1.0))
    assert "dropped: at most 0.70, autoregressive has 1.00" in shown()
    assert shown().index("autoregressive  ") < shown().index("drafter")


def test_a_first_build_that_takes_long_makes_the_guess_longer(board, monkeypatch):
    before, later = board.seconds_needed, perf_counter() + 200
    monkeypatch.setattr("speccompile.measure.compare.board.perf_counter", lambda: later)
    assert board.seconds_needed == pytest.approx(10 * before, rel=0.05)
    assert board.seconds_left < 60 * 4 < 10 * before
    board.built("lookup")
    assert board.seconds_needed < 10 * before


class Terminal(io.StringIO):
    """A stderr that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.mark.parametrize(("form", "drawn"), [(BARS, True), (PLAIN, False)])
def test_a_terminal_shows_the_table_where_it_would_show_bars(board, monkeypatch, form, drawn):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    before = [*LOGGER.handlers]
    choose(form)
    handlers = [*LOGGER.handlers]
    try:
        with live_table(board):
            LOGGER.warning("a warning")
        assert [*LOGGER.handlers] == handlers
    finally:
        for handler in handlers:
            if handler not in before:
                LOGGER.removeHandler(handler)
    text = stream.getvalue()
    assert ("1.50" in text, "a warning" in text) == (drawn, True)
