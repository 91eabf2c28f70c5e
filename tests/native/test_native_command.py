"""`speccompile-native` where the system lacks what it needs: room on stdout, and memory."""

import os
import re
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


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("-q", "inspect", "BUNDLE"), []),
        (("inspect", "BUNDLE", "-q"), []),
        (("inspect", "BUNDLE", "--quiet"), []),
        (("-v", "inspect", "-q", "BUNDLE"), ["error: received --quiet and --verbose, expected one of them"]),
    ],
)
def test_how_much_is_said_is_taken_before_and_after_the_command(run, tmp_path, words, told):
    bundle = write_arithmetic_bundle(tmp_path / "toy")
    assert run(*(bundle if word == "BUNDLE" else word for word in words))[1][:1] == told


def test_verbose_tells_the_seconds_of_a_short_step(run, tmp_path):
    bundle = write_arithmetic_bundle(tmp_path / "toy")
    arguments = ("generate", bundle, "--token-ids", "1,2", "-n", "2")
    opening = [line for line in run(*arguments, "-v")[1] if line.startswith("opening")]
    assert [re.sub(r"[\d.]+ s", "N s", line[len(f"opening {bundle}") :]) for line in opening] == [" ...", ": N s"]
    assert f"opening {bundle} ..." in run(*arguments)[1]


def test_an_option_without_its_value_names_the_command(run):
    code, lines = run("bench", "bundle", "--prompts")
    assert (code, lines) == (
        2,
        ["error: Option '--prompts' requires an argument.", "hint: see speccompile-native bench --help"],
    )
