"""What the tests of pages share: the demo, built once a session."""

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.running import ROOT


@pytest.fixture(scope="session")
def built_demo(shared_folder: Path) -> Path:
    """The bundle of recipes/demo. Workers share a folder: the first of them builds it, the others wait."""
    folder = shared_folder / "built-demo"
    with (shared_folder / "built-demo.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            command = [sys.executable, "-m", "speccompile", "--quiet", "build", str(ROOT / "recipes/demo")]
            subprocess.run([*command, "--output", str(folder)], check=True)
    return folder
