"""Conversion of exceptions to exit codes. Data goes to stdout, messages go to stderr."""

import errno
import re
import signal
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from types import FrameType
from typing import NoReturn

import click

from speccompile.cli.error_codes import COMMAND_LINE, DEFECT, OUT_OF_MEMORY, code_of, find
from speccompile.cli.progress_output import progress_on_stderr
from speccompile.cli.standard_streams import STDOUT, drop_output
from speccompile.cli.words import option_elsewhere
from speccompile.errors import DEFECT_EXIT_CODE, BuildError, SpeccompileError, UsageError
from speccompile.extras import install_hint, missing_package
from speccompile.machine.dropped_interrupts import dropped_interrupts_sent_again
from speccompile.machine.resource_errors import out_of_memory_message, tightest_memory_limit
from speccompile.progress import LOGGER

OS_HINTS = {
    errno.ENOSPC: "free some disk space, or choose an output folder elsewhere",
    errno.EACCES: "check the permissions, or choose another path",
    errno.EPERM: "check the permissions, or choose another path",
    errno.EROFS: "choose a path that can be written",
}

PANIC = "PanicException"
"""Class of the errors of libraries in Rust that they did not expect, which are no Exception."""

SIGNAL = 128
"""A shell's exit code of a program that ends by a signal is this and the signal's number."""


class Interrupted(click.Abort):
    """An interrupt of a command that keeps something. The message says what, and how to go on."""


class ReaderLeftError(Exception):
    """The reader of stdout or stderr has closed it."""


def run(group: click.Group, arguments: Sequence[str] | None) -> int:
    """Run a command and return its exit code. Report any error on stderr."""
    with progress_on_stderr():
        try:
            with _terminate_as_interrupt():
                result = group.main(arguments, prog_name="speccompile", standalone_mode=False)
            return result if isinstance(result, int) else 0
        except (KeyboardInterrupt, click.Abort) as interrupt:
            kept = str(interrupt) if isinstance(interrupt, Interrupted) else "nothing was kept"
            cause = interrupt if isinstance(interrupt, KeyboardInterrupt) else interrupt.__cause__
            return _fail(f"interrupted; {kept}", None, interrupt_code(cause), name="")
        except ReaderLeftError:
            drop_output()
            return SIGNAL + signal.SIGPIPE
        except BaseException as error:  # `_report` treats an unknown error as a defect of speccompile
            if not isinstance(error, Exception) and type(error).__name__ != PANIC:
                raise
            return _report(error)


def _report(error: BaseException) -> int:
    """Print the reason of a failed command and return the exit code."""
    if not isinstance(error, BuildError) and (words := out_of_memory_message(error)) is not None:
        limit = tightest_memory_limit()
        message = f"memory ran out: {words}: received {limit.size / 1e9:.1f} GB ({limit.name})"
        return _fail(message, limit.hint, 1, code=find(OUT_OF_MEMORY))
    match error:
        case SpeccompileError():
            return _fail(str(error), error.hint, error.exit_code, code=code_of(error))
        case click.UsageError():
            message = error.message if isinstance(error, click.NoSuchOption | click.NoSuchCommand) else ""
            # click says of text for a number with limits that it is no valid range
            message = re.sub(r"(is not a valid \w+) range\.$", r"\1.", message or error.format_message())
            return _fail(message, _command_line_hint(error), UsageError.exit_code, code=find(COMMAND_LINE))
        case ModuleNotFoundError(name=str(name)) if install_hint(name):
            return _report(missing_package(name, purpose="this command"))
        case OSError(errno=int(number), strerror=str(reason)):
            where = f"{error.filename}: " if error.filename else ""
            if error.filename == STDOUT:
                drop_output()
            return _fail(f"{where}{reason}", OS_HINTS.get(number), 1, code=code_of(error))
        case _:
            trace = "".join(traceback.format_exception(error)).rstrip()
            words = "this is a defect of speccompile: please report it with the lines above"
            return _fail(f"{trace}\n{words}", None, DEFECT_EXIT_CODE, name="", code=find(DEFECT))


def _command_line_hint(error: click.UsageError) -> str:
    """Return what to write instead of a word that the command line does not have, or where its words are listed."""
    match error:
        case click.NoSuchOption(option_name=word) if ours := option_elsewhere(word, _options(error)):
            return f"did you mean {ours}?"
        case click.NoSuchOption(possibilities=[nearest, *_]):
            return f"did you mean {nearest}?"
        case click.NoSuchCommand(possibilities=[nearest, *_], ctx=click.Context(command_path=path)):
            return f"did you mean '{path} {nearest}'?"
        case click.BadParameter() if choice := _near(error):
            return f"did you mean {choice}?"
        case click.UsageError() if _lacks_prompt_option(error):
            return "give a prompt with --prompt"
        case _:
            return f"see {error.ctx.command_path if error.ctx else 'speccompile'} --help"


def _options(error: click.UsageError) -> set[str]:
    """Return the names of all options of the command that was called, or of none."""
    return {name for each in (error.ctx.command.params if error.ctx else []) for name in each.opts}


def _lacks_prompt_option(error: click.UsageError) -> bool:
    """Return whether a command that has the option --prompt received a word without it."""
    return "--prompt" in _options(error) and error.message.startswith("Got unexpected extra argument")


def interrupt_code(interrupt: BaseException | None) -> int:
    """Return the exit code of an interrupt, which has the signal's number, or of Ctrl-C, to which Python gives none."""
    return SIGNAL + (int(interrupt.args[0]) if interrupt is not None and interrupt.args else signal.SIGINT)


def _near(error: click.BadParameter) -> str | None:
    """Return the choice that is nearest to the value that was refused; click's message begins with it, quoted. None
    where nothing is near, and for other values than choices."""
    known = error.param.type if error.param is not None else None
    if not isinstance(known, click.Choice):
        return None
    value = error.message.partition("'")[2].partition("'")[0]
    return next(iter(get_close_matches(value, map(str, known.choices), n=1)), None)


def _fail(message: str, hint: str | None, exit_code: int, *, name: str = "error: ", code: str | None = None) -> int:
    """Log why a command ends, and return its exit code. code: of the catalogue of errors; an interrupt has none."""
    message = message.strip()
    lines = [f"{name}{message}", *([f"hint: {hint}"] if hint else [])]
    lines += [f"help: speccompile explain {code}"] if code else []
    failure = {"code": code, "message": message, "hint": hint, "exit_code": exit_code}
    LOGGER.error("%s", "\n".join(lines), extra={"failure": failure})
    return exit_code


@contextmanager
def _terminate_as_interrupt() -> Iterator[None]:
    """Handle SIGTERM and SIGHUP like Ctrl-C, so that both clean up. A signal that `nohup` ignores stays ignored."""
    wanted = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, _interrupt) for number in wanted}
    try:
        with dropped_interrupts_sent_again():
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt(number)
