"""The plugin that runs this suite: runs that end, in whatever way, leave nothing behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.light.suite_example import write

SERVING = """
import subprocess, sys, time

def test_serves(tmp_path):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(77)", NAME], start_new_session=True)
    (tmp_path / "file").write_text("here")
    open(NAME, "w").close()
    time.sleep(WAIT)
"""


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are found in /proc")
@pytest.mark.parametrize(
    ("number", "workers"),
    [
        (signal.SIGTERM, []),
        pytest.param(signal.SIGINT, [], marks=pytest.mark.sweep("SIGTERM ends a run as SIGINT does")),
        (signal.SIGKILL, []),
        (signal.SIGKILL, ["-n", "2"]),
        (None, ["-n", "2"]),
    ],
    ids=str,
)
def test_a_run_that_ends_leaves_nothing_behind(
    suite: pytest.Pytester, tmp_path: Path, number: signal.Signals | None, workers: list[str]
) -> None:
    sign, base = tmp_path / "is-serving", tmp_path / "base"
    base.mkdir()
    code = SERVING.replace("NAME", repr(str(sign))).replace("WAIT", "60" if number else "0")
    write(suite, "test_second", code)
    command = [sys.executable, "-m", "pytest", "tests/test_second.py", *workers]
    environment = os.environ | {"PYTEST_DEBUG_TEMPROOT": str(base)}
    with subprocess.Popen(
        command, cwd=suite.path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as run:
        until = time.monotonic() + 60
        while not sign.exists() and run.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        assert sign.exists()
        if number is not None:
            run.send_signal(number)
        said, _ = run.communicate(timeout=60)
    assert run.returncode == {signal.SIGKILL: -signal.SIGKILL, None: 0}.get(number, 2)
    if number is not signal.SIGKILL:
        assert f"killed, as the run left it behind: {sys.executable} -c import time; time.sleep(77)" in said.decode()
    until = time.monotonic() + 30
    while (left := processes(str(suite.path), str(sign))) or (number and list(base.glob("*/pytest-0"))):
        assert time.monotonic() < until, left
        time.sleep(0.1)


def processes(*words: str) -> list[str]:
    """Return the command lines of processes that have one of `words` in them, or as their folder."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if int(folder.name) != os.getpid() and any(
                word in (line, str((folder / "cwd").readlink())) or word in line for word in words
            ):
                found.append(line)
        except OSError:
            continue
    return found
