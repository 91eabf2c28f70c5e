"""The programs that run the kernels (kernels.cpp, attention.cpp), compiled where they are missing or old."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build" / "performance"


class PerfError(Exception):
    """Measurement that is impossible here. The message says what is missing, and a hint."""


def compiled(name: str = "kernel_roofline") -> Path:
    """Return a program, compiled from what lies here. Raises PerfError where there is no compiler, or it fails."""
    for tool, hint in (("cmake", "scripts/setup installs it into .venv"), ("c++", "apt install g++")):
        if shutil.which(tool) is None:
            raise PerfError(f"found no {tool}; hint: {hint}")
    print("perf: compiling", file=sys.stderr)
    jobs = str(len(os.sched_getaffinity(0)))
    for command in (
        ["cmake", "-S", str(HERE), "-B", str(BUILD), "-DCMAKE_BUILD_TYPE=Release"],
        ["cmake", "--build", str(BUILD), "--target", name, "--parallel", jobs],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise PerfError(f"{' '.join(command)} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}")
    return BUILD / name
