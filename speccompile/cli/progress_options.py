"""Options that every command has: how much is said on stderr, and in which form."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from speccompile.cli.progress_output import AUTO, FORMS, NONE, choose

F = TypeVar("F", bound=Callable[..., Any])


def _apply(ctx: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Show progress as all options so far ask, those before the command's name included."""
    if value in (None, False) or ctx.resilient_parsing:
        return value
    asked = ctx.find_root().meta.setdefault(__name__, {})  # not `obj`, which is each command's own
    asked[parameter.name] = value
    if asked.get("quiet") and asked.get("verbose"):
        raise click.UsageError("received --quiet and --verbose, expected one of them", ctx)
    choose(NONE if asked.get("quiet") else asked.get("progress", AUTO), verbose=bool(asked.get("verbose")))
    return value


_SETTINGS: dict[str, Any] = {"expose_value": False, "callback": _apply}


def _options() -> list[click.Option]:
    forms = click.Choice(FORMS)
    return [
        click.Option(["-q", "--quiet"], is_flag=True, help="Show no progress on stderr.", **_SETTINGS),
        click.Option(["-v", "--verbose"], is_flag=True, help="Show details on stderr as well.", **_SETTINGS),
        click.Option(["--progress"], type=forms, help="On stderr; auto: bars on a terminal, else lines.", **_SETTINGS),
    ]


def progress_options(command: F) -> F:
    """Add the options to a command's function."""
    params = [*reversed(_options()), *getattr(command, "__click_params__", [])]
    command.__click_params__ = params  # type: ignore[attr-defined]
    return command


def without_progress_options(command: click.Command) -> list[click.Parameter]:
    """Return the parameters of a command but for these options."""
    ours = {name for each in _options() for name in each.opts}
    return [each for each in command.params if not ours & set(each.opts)]


def with_progress_options(command: click.Command) -> click.Command:
    """Return a command that was defined without the options, with them; so are the commands of a group."""
    taken = {name for each in command.params for name in each.opts}
    command.params += [each for each in _options() if not taken & set(each.opts)]
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            with_progress_options(inner)
    return command
