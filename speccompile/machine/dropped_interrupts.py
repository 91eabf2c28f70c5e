"""Interrupts whose exception comes in a destructor, where Python drops it: the import of torch runs thousands."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def dropped_interrupts_sent_again() -> Iterator[None]:
    """Send a signal again, inside a `with` block, whose KeyboardInterrupt Python has dropped."""
    hook, sys.unraisablehook = sys.unraisablehook, _send_again
    try:
        yield
    finally:
        sys.unraisablehook = hook


def _send_again(ignored: "sys.UnraisableHookArgs") -> None:
    """Send the signal again. Report other exceptions that are dropped as Python does."""
    interrupt = ignored.exc_value
    if not isinstance(interrupt, KeyboardInterrupt):
        sys.__unraisablehook__(ignored)
        return
    number, main = interrupt.args[0] if interrupt.args else signal.SIGINT, threading.main_thread().ident or 0
    threading.Timer(0.05, signal.pthread_kill, (main, number)).start()  # behind the destructor
