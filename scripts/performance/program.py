"""The programs that run the kernels (kernels.cpp, attention.cpp), compiled where they are missing or old."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build" / "performance"
CROSS = "aarch64-linux-gnu-"
"""Prefix of the names of the programs that compile for ARM."""


class PerfError(Exception):
    """Measurement that is impossible here. The message says what is missing, and a hint."""


def compiled(name: str = "kernel_roofline", *, cross: bool = False) -> Path:
    """Return a program, compiled from what lies here. cross: for ARM. Raise PerfError where there is no compiler, or it
    fails."""
    compiler, package = (f"{CROSS}g++", "g++-aarch64-linux-gnu") if cross else ("c++", "g++")
    for tool, hint in (("cmake", "scripts/setup installs it into .venv"), (compiler, f"apt install {package}")):
        if shutil.which(tool) is None:
            raise PerfError(f"found no {tool}; hint: {hint}")
    print("perf: compiling", file=sys.stderr)
    jobs, folder = str(len(os.sched_getaffinity(0))), BUILD.with_name(f"{BUILD.name}-aarch64") if cross else BUILD
    system = {
        "SYSTEM_NAME": "Linux",
        "SYSTEM_PROCESSOR": "aarch64",
        "CXX_COMPILER": compiler,
        "EXE_LINKER_FLAGS": "-static",
    }
    own = [f"-DCMAKE_{key}={value}" for key, value in system.items()] if cross else []
    for command in (
        ["cmake", "-S", str(HERE), "-B", str(folder), "-DCMAKE_BUILD_TYPE=Release", *own],
        ["cmake", "--build", str(folder), "--target", name, "--parallel", jobs],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise PerfError(f"{' '.join(command)} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}")
    return folder / name
