"""The native runtime, compiled once a session for all tests of all workers, and ONNX Runtime's library for it.

$SPECCOMPILE_NATIVE_BUILD names a folder that is kept: there the next session compiles only what has changed.
"""

import fcntl
import os
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from speccompile.native import packaging


@pytest.fixture(scope="session")
def native_build(shared_folder: Path) -> Path:
    """CMake's build folder of the runtime as it is released, with the programs of native/tests."""
    folder = Path(os.environ.get("SPECCOMPILE_NATIVE_BUILD") or shared_folder / "native")
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
            settings = ("-DCMAKE_BUILD_TYPE=Release", "-DSPECCOMPILE_TESTS=ON", "-DCMAKE_COMPILE_WARNING_AS_ERROR=ON")
            run(cmake, "-S", packaging.FOLDER, "-B", folder, *packaging._generator(), *settings)
            run(cmake, "--build", folder, "--parallel", os.cpu_count() or 1)
            done.touch()
    return folder


def run(*command: object) -> str:
    """What a program says; a failure tells the end of it."""
    words = [str(part) for part in command]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, "\n".join([" ".join(words), *done.stdout.splitlines()[-60:]])
    return done.stdout


@pytest.fixture(scope="session")
def native_library(native_build: Path) -> Path:
    """libspeccompile.so, with its true name."""
    return (native_build / "libspeccompile.so").resolve()


@pytest.fixture(scope="session")
def onnxruntime_library() -> Path:
    """The library of the installed package, which has a copy of it for Python beside it."""
    found = find_spec("onnxruntime")
    if found is None or found.origin is None:
        pytest.skip("onnxruntime is not installed")
    files = sorted((Path(found.origin).parent / "capi").glob("libonnxruntime.so.1.*"))
    if not files:
        pytest.skip("the installed onnxruntime has no library beside Python's")
    return files[0]
