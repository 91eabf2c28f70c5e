"""`speccompile-native` where the system lacks what it needs: room on stdout, and memory."""

import os
import resource
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.native.toy_onnx import write_arithmetic_bundle

MEGABYTES = range(40, 240, 10)
"""Limits of address space: below the first the program itself does not start."""


@pytest.fixture
def run(native_build, onnxruntime_library):
    """Run the program, and return the exit code and its lines on stderr."""

    def act(*words: object, **options: Any) -> tuple[int, list[str]]:
        done = subprocess.run(
            [native_build / "speccompile-native", *map(str, words)],
            env=os.environ | {"SPECCOMPILE_ONNXRUNTIME": str(onnxruntime_library)},
            **({"stdout": subprocess.DEVNULL} | options), stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        return done.returncode, done.stderr.splitlines()

    return act


def test_an_error_of_stdout_names_it(run):
    with Path("/dev/full").open("wb") as full:
        code, lines = run("--version", stdout=full)
    assert (code, lines[0]) == (1, "error: stdout: No space left on device")


def test_memory_that_runs_out_is_told_as_such_wherever_that_is(run, tmp_path):
    bundle = write_arithmetic_bundle(tmp_path / "toy")
    found = set()
    for each in MEGABYTES:

        def limit(size: int = each * 10**6) -> None:
            resource.setrlimit(resource.RLIMIT_AS, (size, size))

        code, lines = run("-q", "generate", bundle, "--prompt", "abc", preexec_fn=limit)
        errors = [line for line in lines if line.startswith("error: ")]
        assert (code, errors) in [(0, []), (1, ["error: out of memory"])], each
        found.add(code)
    assert found == {0, 1}
