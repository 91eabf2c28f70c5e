"""Conversion of exceptions to exit codes. Data goes to stdout, messages go to stderr."""

import errno
import signal
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

import click

from speccompile.cli.progress_output import progress_on_stderr
from speccompile.errors import DEFECT_EXIT_CODE, BuildError, SpeccompileError, UsageError
from speccompile.extras import install_hint, missing_package
from speccompile.machine.resource_errors import out_of_memory_message, tightest_memory_limit

OS_HINTS = {
    errno.ENOSPC: "free some disk space, or choose an output folder elsewhere",
    errno.EACCES: "check the permissions, or choose another path",
    errno.EPERM: "check the permissions, or choose another path",
    errno.EROFS: "choose a path that can be written",
}


def run(group: click.Group, arguments: Sequence[str] | None) -> int:
    """Run a command and return its exit code. Report any error on stderr."""
    try:
        with progress_on_stderr(), _terminate_as_interrupt():
            result = group.main(arguments, prog_name="speccompile", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except (KeyboardInterrupt, click.Abort):
        _print_error("interrupted; nothing was kept")
        return 1
    except Exception as error:  # `_report` treats an unknown error as a defect of speccompile
        return _report(error)


def _report(error: Exception) -> int:
    """Print the reason of a failed command and return the exit code."""
    if not isinstance(error, BuildError) and (words := out_of_memory_message(error)) is not None:
        limit = tightest_memory_limit()
        return _fail(f"memory ran out: {words}: received {limit.size / 1e9:.1f} GB ({limit.name})", limit.hint, 1)
    match error:
        case SpeccompileError():
            return _fail(str(error), error.hint, error.exit_code)
        case click.NoSuchOption(possibilities=[nearest, *_]):
            return _fail(f"{error.message} ", f"did you mean {nearest}?", UsageError.exit_code)
        case click.UsageError():
            path = error.ctx.command_path if error.ctx else "speccompile"
            return _fail(error.format_message(), f"see {path} --help", UsageError.exit_code)
        case ModuleNotFoundError(name=str(name)) if install_hint(name):
            return _report(missing_package(name, purpose="this command"))
        case OSError(errno=int(number), strerror=str(reason)):
            where = f"{error.filename}: " if error.filename else ""
            return _fail(f"{where}{reason}", OS_HINTS.get(number), 1)
        case _:
            _print_error("".join(traceback.format_exception(error)).rstrip())
            _print_error("this is a defect of speccompile: please report it with the lines above")
            return DEFECT_EXIT_CODE


def _fail(message: str, hint: str | None, code: int) -> int:
    _print_error(f"error: {message.strip()}")
    if hint:
        _print_error(f"hint: {hint}")
    return code


def _print_error(text: str) -> None:
    click.echo(text, err=True)


@contextmanager
def _terminate_as_interrupt() -> Iterator[None]:
    """Handle SIGTERM and SIGHUP like Ctrl-C, so that both clean up. A signal that `nohup` ignores stays ignored."""
    wanted = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, _interrupt) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
