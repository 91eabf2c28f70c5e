"""Short options and aliases mean the same in every command that has the option."""

from collections.abc import Iterator

import click
import pytest

from speccompile.cli.main import COMMANDS, group

SHORT = {
    "--prompt": "-p", "--max-new-tokens": "-n", "--temperature": "-t", "--output": "-o", "--help": "-h",
    "--quiet": "-q", "--verbose": "-v", "--version": "-V",
}  # fmt: skip


def commands(within: click.Group, names: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    for name in COMMANDS if within is group else within.commands:
        found = within.get_command(click.Context(within), name)
        if isinstance(found, click.Group):
            yield from commands(found, (*names, name))
        else:
            yield " ".join((*names, name)), found


@pytest.fixture(scope="module")
def options() -> list[tuple[str, click.Option]]:
    """Return command and option, of all commands and of what stands before them."""
    every = [("", group), *commands(group)]
    context = click.Context(group, help_option_names=["-h", "--help"])
    return [
        (name, each)
        for name, command in every
        for each in [*command.params, click.Option([*command.get_help_option_names(context)])]
        if isinstance(each, click.Option)
    ]


def test_a_long_option_has_the_same_short_one_everywhere(options):
    long = [(name, each) for name, each in options for word in each.opts if word in SHORT]
    assert len(long) > 60
    assert [(name, each.opts) for name, each in long if not {*each.opts} & {*SHORT.values()}] == []


def test_a_short_option_has_one_meaning(options):
    long_of = {short: long for long, short in SHORT.items()}
    known = [(name, each.opts) for name, each in options if {*each.opts} & {*long_of}]
    assert [found for found in known if not any(long_of.get(word) in found[1] for word in found[1])] == []


def test_max_tokens_is_max_new_tokens_everywhere(options):
    found = [(name, each) for name, each in options if "--max-new-tokens" in each.opts]
    assert len(found) > 8
    assert [name for name, each in found if getattr(each, "aliases", ()) != ("--max-tokens",)] == []


def test_threads_are_an_option_of_every_command_that_runs_a_bundle(options):
    has = {name for name, each in options if "--threads" in each.opts}
    assert has >= {
        "run",
        "chat",
        "generate",
        "transcribe",
        "serve",
        "batch",
        "prove",
        "bench",
        "compare",
        "tune",
        "train",
    }
