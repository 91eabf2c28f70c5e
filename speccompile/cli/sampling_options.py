"""Command-line options of sampling, shared by all commands that generate."""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from speccompile.bundle.sampling import LOGIT_BIAS, SAMPLING_OPTIONS
from speccompile.cli.options import Option
from speccompile.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])

NAMES = (*SAMPLING_OPTIONS, LOGIT_BIAS)
"""Names of the options' values."""
_SHORT = {"temperature": "-t"}


def sampling_options(command: F) -> F:
    """Add the options to a command, by their names in `Bundle.generate_batch`. Greedy bundles refuse them."""
    command = click.option(
        "--logit-bias", metavar="ID=VALUE", multiple=True, callback=_read_biases,
        help="Add VALUE, from -100 to 100, to the logit of a token. May be given several times.",
    )(command)  # fmt: skip
    for name, option in reversed(SAMPLING_OPTIONS.items()):
        kind = float if option.kind == "number" else int
        settings: dict[str, Any] = {"metavar": option.metavar, "type": kind, "help": option.help}
        if name in _SHORT:
            settings |= {"cls": Option, "default": option.neutral, "show_default": True}
        names = [*filter(None, [_SHORT.get(name)]), f"--{name.replace('_', '-')}"]
        command = click.option(*names, **settings)(command)
    return command


def needs_sampling(options: Mapping[str, Any]) -> bool:
    """Return whether one of these options needs a bundle that was built with decoding: sampling."""
    warm = [name for name, option in SAMPLING_OPTIONS.items() if option.changes_greedy]
    changes = any(options[name] not in (None, SAMPLING_OPTIONS[name].neutral) for name in warm)
    return changes or bool(options[LOGIT_BIAS])


def _read_biases(context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> dict[int, float] | None:
    """Return numbers by token id, None without any. Raise UsageError for other texts, and a token that is there
    twice."""
    found = dict[int, float]()
    for text in given:
        match = re.fullmatch(r"([0-9]{1,10})=([-+]?[0-9]*\.?[0-9]+)", text)
        if match is None or int(match[1]) in found:
            problem = "a text of another form" if match is None else "the token twice"
            raise UsageError(
                f"--logit-bias {text}: received {problem}, expected ID=VALUE once for a token",
                hint="as in --logit-bias 262=-100, which keeps token 262 out",
            )
        found[int(match[1])] = float(match[2])
    return found or None
