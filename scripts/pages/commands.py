"""docs/reference/commands.md: every command, from click's own description of it."""

import inspect
from collections.abc import Iterator

import click

from speccompile.cli.main import COMMANDS, group

HEAD = """# Commands

Every command, with its arguments and options. `speccompile COMMAND --help` prints the same. Results go to stdout,
messages and progress to stderr. [Errors](errors.md) lists the exit codes. This page is made from the code by
`scripts/docs --write`.
"""


def page() -> str:
    parts = [HEAD, "## Options of every command\n", _options(group)]
    # With its settings: click keeps the option --help of a command as the first context has it.
    context = click.Context(group, info_name="speccompile", **group.context_settings)
    for name in COMMANDS:
        command = group.get_command(context, name)
        assert command is not None
        parts += _described(command, context, f"speccompile {name}", 2)
    return "\n".join(parts).rstrip() + "\n"


def _described(command: click.Command, parent: click.Context, name: str, level: int) -> Iterator[str]:
    """Yield the parts of a command's chapter, and of those of its subcommands."""
    context = click.Context(command, info_name=name, parent=parent)
    pieces = command.collect_usage_pieces(context)
    yield f"{'#' * level} {name}\n"
    yield f"```text\n{' '.join([name, *pieces])}\n```\n"
    yield _help(command)
    yield _options(command)
    if isinstance(command, click.Group):
        for each, below in sorted(command.commands.items()):
            yield from _described(below, context, f"{name} {each}", level + 1)


def _help(command: click.Command) -> str:
    """Return the help text: what click prints as it stands (after \\b) is a block, the rest are paragraphs."""
    text = inspect.cleandoc(command.help or command.short_help or "").partition("\f")[0]
    parts = []
    for paragraph in text.split("\n\n"):
        if paragraph.startswith("\b"):
            block = inspect.cleandoc(paragraph.removeprefix("\b").strip("\n"))
            parts.append(f"```text\n{block}\n```\n")
        else:
            parts.append(_escaped(" ".join(paragraph.split())) + "\n")
    if command.epilog:
        parts.append(_escaped(" ".join(command.epilog.replace("\b", "").split())) + "\n")
    return "\n".join(parts)


def _options(command: click.Command) -> str:
    rows = [_row(each) for each in command.params if isinstance(each, click.Option) and not each.hidden]
    if not rows:
        return ""
    return "\n".join(["| option | meaning |", "|---|---|", *rows]) + "\n"


def _row(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    kind = "" if option.is_flag or option.count else f" `{option.metavar or _kind(option.type)}`"
    meaning = _escaped(" ".join((option.help or "").split()))
    if option.show_default and option.default is not None and not callable(option.default):
        meaning += f" Default: `{option.default}`."
    return f"| {names}{kind} | {meaning} |"


def _kind(kind: click.ParamType) -> str:
    if isinstance(kind, click.Choice):
        return "/".join(str(choice) for choice in kind.choices)
    return kind.name.upper()


def _escaped(text: str) -> str:
    """Escape a text for Markdown."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
