"""Python modules in separate processes: polygraphy chooses TensorRT's flavour once a process, and parsers crash."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path


def python_command(*arguments: str) -> list[str]:
    """Return the command that runs this interpreter. -P: no file of the working directory shadows a module."""
    return [sys.executable, "-P", *arguments]


def run_python(
    *arguments: str,
    seconds: float | None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> "subprocess.CompletedProcess[str]":
    """Run this interpreter to its end and return its output. It has this process's module search path.

    environment: variables in addition to ours. Raise subprocess.TimeoutExpired after `seconds`, and kill it.
    """
    return subprocess.run(  # noqa: S603  # our own interpreter
        python_command(*arguments),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **(environment or {})},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds,
        check=False,
    )
