"""A run leaves no process and no folder behind, however it ends: see `reaper`, which does it."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType
from typing import NoReturn
from uuid import uuid4

import pytest

from tests.suite import reaper
from tests.suite.tiers import is_worker

_REAPER = pytest.StashKey[subprocess.Popen[bytes]]()


def pytest_configure(config: pytest.Config) -> None:
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """End as after Ctrl-C, with the fixtures' own ends: pytest knows no other signal."""
    raise KeyboardInterrupt("ended by SIGTERM")


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Mark the environment before the first child of the run, by which its processes are known."""
    config = session.config
    if is_worker(config) or config.option.collectonly or not Path("/proc/self/environ").exists():
        return
    given = config.option.basetemp is not None  # somebody else's folder stays
    folder = Path(os.devnull) if given else config._tmp_path_factory.getbasetemp()
    os.environ[reaper.RUN] = uuid4().hex
    config.stash[_REAPER] = subprocess.Popen(
        [sys.executable, "-I", "-S", reaper.__file__, os.environ[reaper.RUN], str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # out of reach of what ends the run
        cwd=tempfile.gettempdir(),
    )


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Check when all fixtures have ended, and before the summary, which is to be the last that is said."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    for command in _end(session.config, orderly=exitstatus != pytest.ExitCode.INTERRUPTED):
        if reporter is not None:
            reporter.write_line(f"killed, as the run left it behind: {command}")


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    _end(config, orderly=False)


def _end(config: pytest.Config, *, orderly: bool) -> list[str]:
    """Let the reaper do its work, once. Returns the processes that it killed."""
    process = config.stash.get(_REAPER, None)
    if process is None:
        return []
    del config.stash[_REAPER]
    try:
        said, _ = process.communicate(b"end" if orderly else b"", timeout=30)
    except subprocess.TimeoutExpired:
        return []  # a process that cannot be killed: the reaper goes on trying
    return said.decode().splitlines()
