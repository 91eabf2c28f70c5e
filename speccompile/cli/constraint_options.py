"""Command-line options for constraints on new tokens."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from speccompile.errors import UsageError
from speccompile.machine.plain_files import read_plain

if TYPE_CHECKING:
    from speccompile.runtime import Bundle
    from speccompile.runtime.constraints import Constraint

F = TypeVar("F", bound=Callable[..., Any])

KINDS = {"json_schema": "--json-schema", "regex": "--regex", "grammar": "--grammar", "choice": "--choice"}
"""Kind of a constraint -> its option."""

OPTIONS = (
    click.option("--json-schema", metavar="FILE", help="The new text is JSON that this schema allows; - for stdin."),
    click.option("--regex", metavar="PATTERN", help="The whole new text matches this regular expression."),
    click.option("--grammar", metavar="FILE", help="The new text is of this grammar, in the Lark form of llguidance."),
    click.option("--choice", metavar="TEXT", multiple=True, help="The new text is this, or another --choice."),
)


def constraint_options(command: F) -> F:
    """Add the options to a command; `take` removes their values."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def take(options: dict[str, Any]) -> tuple[str, Any] | None:
    """Remove the constraint options from `options` and return the constraint's kind and text, or None.

    Raise UsageError for several constraints, and for a file that cannot be read.
    """
    found = [(kind, value) for kind in KINDS if (value := options.pop(kind)) not in (None, ())]
    if not found:
        return None
    if len(found) > 1:
        received = " and ".join(KINDS[kind] for kind, _ in found)
        raise UsageError(f"received {received}, expected one of them", hint="write one constraint that says it all")
    kind, value = found[0]
    if kind in ("json_schema", "grammar"):
        return kind, _read(KINDS[kind], value)
    return kind, list(value) if kind == "choice" else value


def impose(bundle: "Bundle", asked: tuple[str, Any] | None) -> "Constraint | None":
    """Return the bundle's constraint for the result of `take`."""
    return None if asked is None else bundle.constraint(*asked)


def _read(option: str, name: str) -> str:
    """Return the text of a file, or of stdin. Raise UsageError for one that cannot be read, or that is larger than any
    constraint."""
    from speccompile.runtime.constraints.limits import SIMPLER, CompileLimits

    most = CompileLimits().grammar_bytes
    try:
        data = _stdin(most) if name == "-" else read_plain(Path(name), most)
        return data.decode().replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno == errno.EFBIG:
            raise UsageError(
                f"{option} {name}: received more than {most} bytes: the limit grammar_bytes", hint=SIMPLER
            ) from None
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"{option} {name}: {reason}", hint="give a file that can be read, or - for stdin") from error


def _stdin(most: int) -> bytes:
    """Return the bytes of stdin. Raise OSError for more than `most`."""
    with click.open_file("-", "rb") as file:
        data: bytes = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    return data
