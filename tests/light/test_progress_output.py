"""Progress of commands as lines, JSON, bars that go, and nothing; and completions in a shell."""

import io
import json
import logging
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from speccompile import progress
from speccompile.cli import progress_bars
from speccompile.cli.completion import SHELLS
from speccompile.cli.main import COMMANDS, group
from speccompile.cli.progress_output import BARS, FORMS, JSON, NONE, PLAIN, choose, shows_bars
from speccompile.errors import BundleError
from speccompile.progress import LOGGER, log_step, progress_counter

DOCS = Path(__file__).resolve().parents[2] / "docs"


class Terminal(io.StringIO):
    """A stderr that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _restored():
    """Undo the choice of a test."""
    yield
    choose(NONE)
    for handler in [*LOGGER.handlers]:
        LOGGER.removeHandler(handler)
    LOGGER.setLevel(logging.NOTSET)
    progress.set_interval(progress.INTERVAL)


@pytest.fixture
def shown(monkeypatch):
    """Choose a form and run something; return what stderr got."""

    def shown(form, act, *, terminal=False, verbose=False, interval=None):
        stream = Terminal() if terminal else io.StringIO()
        monkeypatch.setattr(sys, "stderr", stream)
        LOGGER.setLevel(logging.INFO)
        choose(form, verbose=verbose)
        if interval:
            progress.set_interval(interval)
        act()
        choose(NONE)
        return stream.getvalue()

    return shown


def work():
    with (
        log_step("tracing"),
        progress_counter("tracing", 4, "layers", clock=iter(range(0, 100, 10)).__next__) as advance,
    ):
        advance(2)
    LOGGER.warning("note: %s", "a note")
    LOGGER.debug("details")


def test_lines_are_the_messages(shown):
    assert shown(PLAIN, work) == "tracing ...\ntracing: 2 of 4 layers, 10 s left\nnote: a note\n"
    assert "details\n" in shown(PLAIN, work, verbose=True)
    assert shown(NONE, work) == "note: a note\n"


def test_json_is_an_object_a_line(shown):
    events = [json.loads(line) for line in shown(JSON, work).splitlines()]
    kinds = [event["event"] for event in events]
    assert kinds == ["begin", "begin", "progress", "end", "end", "message"]
    assert events[0] == {"event": "begin", "step": "tracing", "seconds": 0.0}
    told = {"event": "progress", "step": "tracing", "seconds": 10, "done": 2, "total": 4, "unit": "layers", "left": 10}
    assert events[2] == told
    assert events[-1] == {"event": "message", "level": "warning", "message": "note: a note"}


def test_a_step_that_lasts_says_so_and_one_that_failed_ends(shown):
    def fail():
        with log_step("outer"), log_step("inner"):
            time.sleep(0.5)
            raise ValueError("broken")

    def act():
        with pytest.raises(ValueError, match="broken"):
            fail()

    events = [json.loads(line) for line in shown(JSON, act, interval=0.1).splitlines()]
    running = [event for event in events if event["event"] == "running"]
    assert {event["step"] for event in running} == {"inner"}
    assert 2 <= len(running) <= 5
    assert [event["step"] for event in events if event["event"] == "end"] == ["inner", "outer"]


def test_no_thread_outlives_its_step():
    import threading

    with log_step("short"):
        assert any(thread.name == "speccompile-progress" for thread in threading.enumerate())
    assert not any(thread.name == "speccompile-progress" for thread in threading.enumerate())


def test_bars_show_what_lasts_and_leave_nothing(shown, monkeypatch):
    monkeypatch.setattr(progress_bars, "BAR_DELAY", 0.2)

    def act():
        with log_step("brief"):
            pass
        with log_step("lasting"):
            time.sleep(0.4)
        LOGGER.warning("[bold]kept[/bold]")

    text = shown(BARS, act, terminal=True, interval=0.1)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    assert "lasting" in plain
    assert "brief" not in plain
    assert plain.endswith("[bold]kept[/bold]\n")
    assert "\x1b[2K" in text  # the bar was wiped out


def test_bars_need_a_terminal_that_can_show_them(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert shows_bars()
    monkeypatch.setenv("TERM", "dumb")
    assert not shows_bars()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert not shows_bars()
    assert progress_bars.BAR_DELAY <= 2


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["plan", "-q"], ""),
        (["-q", "plan"], ""),
        (["plan"], "look ...\n"),
        (["plan", "--progress", "none"], ""),
        (["--progress", "plain", "plan"], "look ...\n"),
    ],
)
def test_options_stand_before_and_after_the_command(make_recipe, monkeypatch, command_line, arguments, told):
    def look(*_):
        with log_step("look"):
            raise BundleError("stopped here")

    monkeypatch.setattr("speccompile.recipe.make_plan", look)
    assert command_line(*arguments, make_recipe())[2] == f"{told}error: stopped here\nhelp: speccompile explain SC300\n"


def test_contradictions_and_unknown_forms_are_refused(make_recipe, command_line):
    for arguments, message in (
        (["-q", "plan", "-v"], "received --quiet and --verbose, expected one of them"),
        (["plan", "--progress", "bar"], "'bar' is not one of 'auto', 'bars', 'plain', 'json', 'none'"),
    ):
        code, _, err = command_line(*arguments, make_recipe())
        assert (code, message in err) == (2, True)


def test_every_command_has_the_options():
    for name in COMMANDS:
        command = group.get_command(click.Context(group), name)
        options = {option for parameter in command.params for option in parameter.opts}
        assert {"--quiet", "--verbose", "--progress"} <= options, name
        assert ("-o" in options) == ("--output" in options), name
    assert FORMS[0] == "auto"


def completions(words, index):
    variables = {"_SPECCOMPILE_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(index)}
    script = "import sys; from speccompile.cli import main\ntry: main([])\nfinally: print('MODULES', *sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | variables, capture_output=True, text=True, check=False
    )
    found, _, modules = run.stdout.partition("MODULES")
    return [line.partition(",")[2] for line in found.splitlines()], set(modules.split())


def test_names_of_commands_complete_without_importing_one():
    found, modules = completions("speccompile b", 1)
    assert found == [name for name in COMMANDS if name.startswith("b")]
    assert not {"torch", "numpy", "pydantic", "speccompile.cli.build"} & modules
    found, _ = completions("speccompile bench --pro", 2)
    assert found == ["--prompts", "--progress"] or set(found) >= {"--prompts", "--progress"}


@pytest.mark.parametrize("shell", SHELLS)
def test_scripts_are_printed_and_the_page_names_them(shell):
    found = CliRunner().invoke(group, ["completion", shell])
    assert found.exit_code == 0
    assert "_SPECCOMPILE_COMPLETE" in found.output
    assert f"speccompile completion {shell}" in (DOCS / "how-to/shell-completion.md").read_text()
