"""Command-line options of sampling, shared by all commands that generate."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from speccompile.bundle.sampling import SAMPLING_OPTIONS
from speccompile.cli.options import Option

F = TypeVar("F", bound=Callable[..., Any])

_SHORT = {"temperature": "-t"}


def sampling_options(command: F) -> F:
    """Add the options to a command, by their names in `Bundle.generate_batch`. Greedy bundles refuse them."""
    for name, option in reversed(SAMPLING_OPTIONS.items()):
        kind = float if option.kind == "number" else int
        settings: dict[str, Any] = {"metavar": option.metavar, "type": kind, "help": option.help}
        if name in _SHORT:
            settings |= {"cls": Option, "default": option.neutral, "show_default": True}
        names = [*filter(None, [_SHORT.get(name)]), f"--{name.replace('_', '-')}"]
        command = click.option(*names, **settings)(command)
    return command
