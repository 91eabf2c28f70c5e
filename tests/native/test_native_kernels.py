"""The kernels' own tests in C++ (speccompile/native/tests), on every path of this processor.

They have rows and columns around the widths of vectors, over memory that ends where a tensor ends. With sanitizers they
run in tests/compile.
"""

import subprocess
from pathlib import Path

import pytest


@pytest.mark.parametrize("name", ["attention", "chains", "operators", "products", "rows", "states", "thread_pool"])
def test_what_the_kernels_promise(native_build: Path, name: str) -> None:
    done = subprocess.run([native_build / f"test_{name}"], capture_output=True, text=True)
    assert done.returncode == 0, "\n".join((done.stdout + done.stderr).splitlines()[-20:])
