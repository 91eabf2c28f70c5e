"""Options with short forms and aliases, named in errors by their long form."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from speccompile.errors import UsageError


class Option(click.Option):
    """An option such as -n, --max-new-tokens. aliases: other spellings that are accepted and not in the help."""

    def __init__(self, *arguments: Any, aliases: tuple[str, ...] = (), **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.aliases = aliases

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        super().add_to_parser(parser, ctx)
        if self.aliases:
            parser.add_option(obj=self, opts=list(self.aliases), dest=self.name, action="store", nargs=1)

    def get_error_hint(self, ctx: click.Context | None) -> str:
        return repr(next(name for name in self.opts if name.startswith("--")))


class FloatRange(click.FloatRange):
    """A range of numbers without nan, which compares with no limit and passes click's own."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{number} is not in the range {self._describe_range()}.", param, ctx)
        return number


NEW_TOKENS: dict[str, Any] = {"cls": Option, "aliases": ("--max-tokens",), "type": click.IntRange(min=1)}
"""Settings of the option -n, --max-new-tokens of every command."""
SIGNED_BY: dict[str, Any] = {
    "metavar": "FILE",
    "type": click.Path(path_type=Path),
    "help": "Refuse a bundle that this public key has not signed: see `speccompile sign`.",
}
"""Settings of the option --require-signature of every command that may skip hashes."""
THREADS: dict[str, Any] = {
    "type": click.IntRange(min=1),
    "help": "Threads; by default one a core that this process may use.",
}
"""Settings of the option --threads of every command that opens a bundle."""
IMAGES: dict[str, Any] = {
    "metavar": "FILE",
    "multiple": True,
    "help": "A picture for the prompt. May be given several times.",
}
"""Settings of the option --image of every command that takes one prompt."""
CACHE_GB: dict[str, Any] = {
    "metavar": "GB",
    "type": FloatRange(min=0, min_open=True, max=1_000_000),
    "default": 1.0,
    "help": "Say how long a text may be whose caches fit so many GB (1e9 bytes), by default 1.",
}
"""Settings of the option --cache-gb of every command that describes caches."""
TRUNCATE: dict[str, Any] = {
    "type": click.Choice(["left"]),
    "help": "Drop the first tokens of a prompt that leaves no room for the new ones; by default it is refused.",
}
"""Settings of the option --truncate of every command that takes one prompt."""


def _session_path(_context: click.Context, _option: click.Parameter, given: str | None) -> Path | None:
    """Return the file of a session. Raise UsageError for "", which as a path would be the working folder."""
    if given == "":
        raise UsageError("session: received '', expected the path of a file", hint="leave it out for none")
    return None if given is None else Path(given)


SESSION: dict[str, Any] = {
    "metavar": "FILE",
    "type": click.Path(),
    "callback": _session_path,
    "help": "Go on from the text that this file holds, where it is there, and keep the text here at the end.",
}
"""Settings of the option --session of every command that takes one prompt."""

F = TypeVar("F", bound=Callable[..., Any])


def opening_options(command: F) -> F:
    """Add the options with which a bundle is opened: engine, threads, no_verify, signed_by."""
    for option in reversed((
        click.option("--engine", metavar="NAME", help="Engine of the bundle; by default the first that can run here."),
        click.option("--threads", **THREADS),
        click.option("--no-verify", is_flag=True, help="Do not compare the files with their recorded hashes."),
        click.option("--require-signature", "signed_by", **SIGNED_BY),
    )):  # fmt: skip
        command = option(command)
    return command
