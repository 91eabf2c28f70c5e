"""Several processes of a module of the tests, as a launcher starts them."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def launch(
    module: str, *arguments: str, count: int = 2, launcher: Sequence[str] = (), check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run python -m <module> <arguments>, by torch's launcher or another one."""
    # Which finds a port by itself, and keeps it: one that is asked for beforehand may be another's by then.
    own = ("torch.distributed.run", "--standalone", "--nproc_per_node", str(count))
    command = [sys.executable, "-m", *(launcher or own), "-m", module, *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, env=environment)
    assert not check or done.returncode == 0, done.stderr
    return done
