"""The native runtime, compiled once for all tests of all workers, and ONNX Runtime's library for it.

It lies where scripts/setup compiles it, so that a session compiles what has changed since then and no more;
$SPECCOMPILE_NATIVE_BUILD names another folder.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

import pytest

from speccompile.native import packaging
from tests.native.bundle_lines import Lines


@pytest.fixture(scope="session")
def native_build(shared_folder: Path) -> Path:
    """Return CMake's build folder of the runtime as it is released, with the programs of native/tests."""
    folder = Path(os.environ.get("SPECCOMPILE_NATIVE_BUILD") or compiled_by_setup() or shared_folder / "native")
    done = shared_folder / "native-is-compiled"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until the file is closed
        if not done.exists():
            try:
                packaging._check_compiler()
                cmake = packaging._cmake()
            except packaging.CannotCompileError as error:
                pytest.skip(str(error))
            packaging._compile_tests(cmake, folder)
            done.touch()
    return folder


def compiled_by_setup() -> Path | None:
    """Return where scripts/setup has compiled this checkout: it keeps a folder for each compiler."""
    compiler = os.environ.get("CXX") or next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), "")
    line = f"{compiler}\n".encode()
    environment = Path(sys.prefix)
    folder = environment / f"native-{sha256(line).hexdigest()[:12]}"
    return folder if environment.parent == packaging.FOLDER.parents[1] and folder.exists() else None


@pytest.fixture
def lines(native_build: Path) -> Iterator[Lines]:
    """Yield the program, in the environment of the test."""
    started = Lines(native_build)
    yield started
    started.close()


def run(*command: object) -> str:
    """Return what a program says; a failure tells the end of it."""
    words = [str(part) for part in command]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, "\n".join([" ".join(words), *done.stdout.splitlines()[-60:]])
    return done.stdout


@pytest.fixture(scope="session")
def native_library(native_build: Path) -> Path:
    """Return libspeccompile.so, with its true name."""
    return (native_build / "libspeccompile.so").resolve()


@pytest.fixture(scope="session")
def onnxruntime_library() -> Path:
    """Return the library of the installed package, which has a copy of it for Python beside it."""
    found = find_spec("onnxruntime")
    if found is None or found.origin is None:
        pytest.skip("onnxruntime is not installed")
    files = sorted((Path(found.origin).parent / "capi").glob("libonnxruntime.so.1.*"))
    if not files:
        pytest.skip("the installed onnxruntime has no library beside Python's")
    return files[0]
