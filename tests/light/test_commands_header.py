"""Commands of C++ from those of Python: what differs is named, and C++ reads every option that its help names."""

import math
import re

import click
import pytest
from click.testing import CliRunner

from scripts import commands_header
from speccompile.bundle.sampling import SAMPLING_OPTIONS
from speccompile.cli.main import group
from speccompile.cli.options import FloatRange

SOURCES = sorted((commands_header.HEADER.parent).glob("*.cpp"))


def options() -> set[str]:
    """Return the options of the program and its commands, by their long names."""
    params = [each for command in commands_header.commands() for each in command.params]
    return {name for each in params if isinstance(each, click.Option) for name in each.opts if name.startswith("--")}


def test_each_option_of_the_help_is_read_and_the_other_way_round() -> None:
    read = {name for file in SOURCES for name in re.findall(r'"(--[a-z-]+)"', file.read_text(encoding="utf-8"))}
    read |= {f"--{name.replace('_', '-')}" for name in SAMPLING_OPTIONS}  # from the table that C++ has of them
    assert read == options() | {"--help"}


def test_what_differs_is_there_in_python() -> None:
    context = click.Context(group)
    theirs = {name: group.get_command(context, name) for name in commands_header.NAMES}
    found = {(name, each.name) for name, command in theirs.items() if command for each in command.params}
    names = {name for _, name in found}
    assert names >= commands_header.LEFT_OUT | commands_header.REFUSED.keys()
    assert found >= commands_header.ADDED.keys()


def test_words_of_other_programs_are_python_s() -> None:
    found = dict(re.findall(r'^    \{"([\w-]+)", "([^"]+)"\},$', commands_header.render(), re.M))
    assert found["--do-sample"] == "--temperature"
    assert found["benchmark"] == "speccompile-native bench"
    assert found["version"] == "speccompile-native --version"
    assert found["quantize"] == found["build"] == "speccompile build"
    assert not found.keys() & set(commands_header.NAMES)


def test_a_difference_that_python_no_longer_has_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(commands_header.CHANGES, "inspect", {"no such words": ""})
    with pytest.raises(ValueError, match="help of inspect: found 0 times, expected once: 'no such words'"):
        commands_header.render()


@pytest.mark.parametrize("option", [click.Option(["--x"], type=click.UUID), click.Option(["--x"], type=click.File())])
def test_a_type_that_c_does_not_have_is_refused(option: click.Option) -> None:
    with pytest.raises(TypeError, match="expected a type that C\\+\\+ has"):
        list(commands_header.table(click.Command("inspect", params=[option], help="Text.")))


@pytest.mark.parametrize(("given", "code"), [("0.5", 0), ("inf", 0), ("nan", 2), ("0", 2)])
def test_nan_is_in_no_range(given: str, code: int) -> None:
    @click.command
    @click.option("--seconds", type=FloatRange(0, min_open=True))
    def command(seconds: float) -> None:
        assert not math.isnan(seconds)

    done = CliRunner().invoke(command, ["--seconds", given])
    assert done.exit_code == code
    assert code == 0 or f"{float(given)} is not in the range x>0." in done.output
