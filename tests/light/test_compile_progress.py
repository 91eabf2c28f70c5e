"""Lines of an install from source while it compiles: on stderr, and on the terminal where pip keeps that to itself."""

import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest

from speccompile.native import compile_progress, packaging
from speccompile.native.compile_progress import CompileProgress

ROOT = Path(__file__).resolve().parents[2]
NINJA = [
    "[0/2] Re-checking globbed directories...",
    "[1/113] Building CXX object a.o",
    "[2/113] Building CXX object b.o",
]
PROGRAM = """
import os, sys
os.login_tty(int(sys.argv[1]))
if sys.argv[2]:
    os.dup2(os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT), 2)
from speccompile.native.compile_progress import CompileProgress
with CompileProgress() as progress:
    progress.read("[1/113] Building CXX object a.o")
"""


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(compile_progress, "TERMINAL", tmp_path / "missing" / "tty")
    monkeypatch.setattr(os, "cpu_count", lambda: 2)


@pytest.mark.parametrize(
    ("cores", "told"), [(1, "8 minutes on 1 core"), (2, "4 minutes on 2 cores"), (16, "30 s on 16 cores")]
)
def test_first_line_says_how_much_and_how_long(cores: int, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    lines: list[str] = []
    with CompileProgress(write=lines.append) as progress:
        for line in NINJA:
            progress.read(line)
    assert lines == [f"speccompile: compiling 113 files of C++, about {told}"]


def test_long_compilation_says_how_far_it_is() -> None:
    lines: list[str] = []
    with CompileProgress(write=lines.append, every=0.02) as progress:
        time.sleep(0.1)
        for line in NINJA:
            progress.read(line)
        time.sleep(0.1)
    assert lines[0] == "speccompile: compiling, 0 s"
    assert lines[-1] == "speccompile: 2 of 113 files compiled, 0 s"


def test_lines_come_while_the_program_runs(tmp_path: Path) -> None:
    """Run a program that waits for the reader of its first line."""
    mark = tmp_path / "read"
    waits = (
        f"echo '[1/2] Building'; i=0; until [ -e {mark} ]; do i=$((i+1)); [ $i -lt 100 ] || exit 1; sleep 0.05; done"
    )
    packaging._run("sh", "-c", waits, read=lambda line: mark.touch())


def test_failure_has_the_last_lines_alone() -> None:
    with pytest.raises(packaging.CannotCompileError) as caught:
        packaging._run("sh", "-c", "seq 1 30; echo why >&2; exit 7")
    first, *last = str(caught.value).splitlines()
    assert first == "cmake ended with exit status 7:"
    assert last == [*map(str, range(12, 31)), "why"]


@pytest.mark.parametrize("hides", [True, False], ids=["pip hides stderr", "stderr is the terminal"])
def test_terminal_shows_one_line_whatever_stderr_is(hides: bool, tmp_path: Path) -> None:
    hidden = tmp_path / "stderr"
    terminal, other = pty.openpty()
    command = [sys.executable, "-c", PROGRAM, str(other), str(hidden) if hides else ""]
    process = subprocess.Popen(command, pass_fds=[other], cwd=ROOT)
    os.close(other)
    shown = b""
    while chunk := _read(terminal):
        shown += chunk
    os.close(terminal)
    assert process.wait(timeout=60) == 0
    assert shown.count(b"speccompile: compiling 113 files of C++, about ") == 1
    assert (b"pip shows more with -v" in shown) == hides
    assert not hides or hidden.read_text().startswith("speccompile: compiling 113 files of C++, about ")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # its last user has left
        return b""
