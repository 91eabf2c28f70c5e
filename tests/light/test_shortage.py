"""Memory and disks that run out: what libraries raise then, and what the command line says of it."""

import errno
import mmap
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from speccompile.errors import DEFECT_EXIT_CODE, CheckpointError
from speccompile.machine.resource_errors import is_disk_full, out_of_memory_message, tightest_memory_limit
from speccompile.machine.system import memory_limits


def raised(cause) -> BaseException:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever it is
        cause()
    return caught.value


def wrapped(cause) -> BaseException:
    """Wrap it as our own errors hide those of libraries."""

    def load():
        try:
            cause()
        except Exception as error:
            raise CheckpointError("the weights cannot be loaded") from error

    return raised(load)


def torch_says():
    raise RuntimeError(
        "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
        "allocate 9 bytes. Error code 12 (Cannot allocate memory)"
    )


@pytest.mark.parametrize("see", [raised, wrapped])
@pytest.mark.parametrize(
    ("cause", "words"),
    [
        (lambda: np.empty(1 << 50, np.uint8), "Unable to allocate 1.00 PiB for an array with shape"),
        (lambda: mmap.mmap(-1, 1 << 60), "Cannot allocate memory"),
        (lambda: bytearray(1 << 60), ""),
        (torch_says, "DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_memory_that_runs_out_is_known_whatever_hides_it(see, cause, words):
    found = out_of_memory_message(see(cause))
    assert found is not None
    assert words in found


@pytest.mark.parametrize(
    "error", [ValueError("x"), OSError(errno.ENOSPC, "No space left"), CheckpointError("a"), KeyError()]
)
def test_other_errors_are_not_taken_for_it(error):
    assert out_of_memory_message(error) is None


def test_a_text_that_names_it_is_not_taken_for_it():
    """Tell an error from a prompt and a tensor's name with the same words."""
    assert out_of_memory_message(CheckpointError("tensor 'Cannot allocate memory' is missing")) is None


def test_a_full_disk_is_known_whatever_hides_it():
    with Path("/dev/full").open("wb", buffering=0) as file:
        full = raised(lambda: file.write(b"x"))
        numpy = raised(lambda: np.zeros(1 << 20).tofile(file))
    for error in (full, numpy):
        assert is_disk_full(error)
    hidden = CheckpointError("not written")
    hidden.__cause__ = full
    assert is_disk_full(hidden)
    assert not is_disk_full(PermissionError(errno.EACCES, "Permission denied"))


FILLS_THE_DISK = """
import resource, signal, sys
import numpy
from safetensors.numpy import save_file
from speccompile.machine.resource_errors import is_disk_full
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    save_file({"x": numpy.zeros(9999)}, sys.argv[1])
except Exception as error:
    print(is_disk_full(error))
"""


def test_a_full_disk_is_known_from_a_library_in_another_language(tmp_path):
    """Limit the size of files, as a full disk would."""
    command = [sys.executable, "-c", FILLS_THE_DISK, str(tmp_path / "x.safetensors")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_the_lowest_limit_is_one_of_all():
    assert tightest_memory_limit() in memory_limits()
    assert tightest_memory_limit().size == min(limit.size for limit in memory_limits())


IMPORTS = """
import click
from speccompile.cli import exit_codes
@click.group()
def group(): pass
@group.command()
def go():
    import numpy, onnxruntime
    numpy.ones(1 << 30)
raise SystemExit(exit_codes.run(group, ["go"]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of address space work on Linux")
@pytest.mark.parametrize("kilobytes", [200_000, 1_000_000])
def test_the_command_line_says_that_memory_ran_out(kilobytes):
    """Run out of memory while a library is imported, and later."""
    command = f"ulimit -Sv {kilobytes} && exec '{sys.executable}' -c '{IMPORTS}'"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    assert done.returncode not in (0, DEFECT_EXIT_CODE)
    error, hint, code = done.stderr.splitlines()[-3:]
    assert error.startswith("error: memory ran out: ")
    assert error.endswith(f": received {kilobytes * 1024 / 1e9:.1f} GB (`ulimit -v`)")
    assert hint == "hint: raise it: `ulimit -v unlimited`, in the same shell"
    assert code == "help: speccompile explain SC801"
