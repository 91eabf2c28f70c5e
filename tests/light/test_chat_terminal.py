"""`speccompile chat` on a terminal: keys as they come, and Ctrl-C between them."""

import os
import pty
import select
import signal
import subprocess
import sys
import time

import pytest

PROGRAM = """
import signal, threading
from speccompile.cli import chat

def elsewhere():  # takes the signal, as it may any thread: no wait of the main one is interrupted by it
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    threading.Event().wait()

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
threading.Thread(target=elsewhere, daemon=True).start()
{first}
for message in chat._messages():
    print("message", message, flush=True)
print("the end", flush=True)
"""
SECONDS = 20
"""A busy machine may take that long; one that hangs takes longer."""


class Terminal:
    """A program on a terminal of its own: keys in, what it shows out."""

    def __init__(self, program: str) -> None:
        self.keys, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", program], stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
            env=os.environ | {"TERM": "xterm"},
        )  # fmt: skip
        os.close(theirs)
        self.shown = b""  # and not yet waited for

    def type(self, keys: bytes) -> None:
        os.write(self.keys, keys)

    def wait_for(self, text: bytes) -> None:
        """Read until it shows a text, or fail."""
        end = time.monotonic() + SECONDS
        while text not in self.shown:
            ready, _, _ = select.select([self.keys], [], [], max(end - time.monotonic(), 0))
            assert ready, f"{text!r} is not in {self.shown!r}"
            self.shown += os.read(self.keys, 65536)
        self.shown = self.shown.partition(text)[2]


@pytest.mark.parametrize("first", ["", "import readline"], ids=["plain", "readline"])
def test_an_interrupt_that_no_key_follows(first):
    terminal = Terminal(PROGRAM.format(first=first))
    try:
        terminal.wait_for(b"> ")
        terminal.type(b"abc")
        terminal.wait_for(b"c")
        terminal.process.send_signal(signal.SIGINT)
        terminal.wait_for(b"(Ctrl-D or /exit ends the chat)")
        terminal.wait_for(b"> ")
        terminal.type(b"\x15def\r")  # without what a plain terminal keeps of the line
        terminal.wait_for(b"message def")
        terminal.wait_for(b"> ")
        terminal.type(b"\x04")
        terminal.wait_for(b"the end")
        assert terminal.process.wait(SECONDS) == 0
    finally:
        terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.keys)
