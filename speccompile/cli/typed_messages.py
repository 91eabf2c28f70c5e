"""Messages that are typed in `speccompile chat`, one at a time."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

import click

PROMPT, CONTINUED = ">>> ", "... "
BLOCK = '"""'
"""Begins and ends a message of several lines."""


def typed_messages() -> Iterator[str]:
    """Yield typed messages. Ctrl-C drops the message that is being typed."""
    while True:
        try:
            with on_interrupt(_interrupt):
                message = _read_message()
        except EOFError:
            return
        except _InterruptedError:
            click.echo("\n(Ctrl-D or /exit ends the chat)", err=True)
            continue
        if message.strip():
            yield message


def _read_message() -> str:
    line = _read_line(PROMPT)
    if line.lstrip().startswith(BLOCK):
        text = line.lstrip().removeprefix(BLOCK)
        while BLOCK not in text:
            text += "\n" + _read_line(CONTINUED)
        return text.partition(BLOCK)[0].strip("\n")
    while line.endswith("\\"):
        line = line[:-1] + "\n" + _read_line(CONTINUED)
    return line


def _read_line(prompt: str) -> str:
    if sys.stdin.isatty():
        with _ticking():
            return input(prompt)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\n")


class _InterruptedError(Exception):
    """Ctrl-C while a message is typed. KeyboardInterrupt means SIGTERM or SIGHUP, which end the command."""


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise _InterruptedError


@contextmanager
def on_interrupt(handler: Callable[..., Any]) -> Iterator[None]:
    """Call `handler` for Ctrl-C inside a `with` block."""
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


TICK = 0.1
"""Seconds after which a Ctrl-C is noticed at the latest while a message is typed."""


@contextmanager
def _ticking() -> Iterator[None]:
    """Wake `input` now and then inside a `with` block: Python handles a signal where the wait for a key is interrupted,
    and one that comes between two waits, directly behind a key, would be noticed at the next key only."""
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, TICK, TICK)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
