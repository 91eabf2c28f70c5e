"""Compiling the library: when the package is built or installed, or later by `python -m speccompile.native.packaging`.

It needs a C++17 compiler (g++ or clang++) and CMake, which pip brings. Where something is missing the package is built
without the library, and says so. $SPECCOMPILE_NATIVE changes that: "require" makes it an error, "skip" compiles
nothing.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

FOLDER = Path(__file__).parent
VARIABLE = "SPECCOMPILE_NATIVE"
TARGET = "speccompile_kernels"


class CannotCompileError(Exception):
    """What is missing, or what the compiler said last."""


def compile_into(folder: Path) -> Path:
    """Compile the library into `folder` and return its path. Raises CannotCompileError."""
    cmake = _cmake()
    if not os.environ.get("CXX") and not any(map(shutil.which, ("c++", "g++", "clang++"))):
        raise CannotCompileError("found no C++17 compiler: c++, g++ or clang++, or $CXX")
    with TemporaryDirectory() as scratch:
        _run(cmake, "-S", FOLDER, "-B", scratch, "-DCMAKE_BUILD_TYPE=Release", *_generator())
        _run(cmake, "--build", scratch, "--parallel", str(os.cpu_count() or 1), "--target", TARGET)
        (built,) = [path for path in Path(scratch).iterdir() if path.name.startswith(f"lib{TARGET}.")]
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f".{built.name}.part"
        shutil.copy(built, part)
        # Renamed: a process that has the old library open keeps it.
        return part.replace(folder / built.name)


def _cmake() -> str:
    if importlib.util.find_spec("cmake") is not None:
        from cmake import CMAKE_BIN_DIR

        return str(Path(CMAKE_BIN_DIR) / "cmake")
    found = shutil.which("cmake")
    if found is None:
        raise CannotCompileError("found no cmake: pip install cmake")
    return found


def _generator() -> list[str]:
    """Ninja, where pip has brought it: a machine with a compiler may have no make."""
    if importlib.util.find_spec("ninja") is None:
        return []
    from ninja import BIN_DIR

    return ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={Path(BIN_DIR) / 'ninja'}"]


def _run(*command: object) -> None:
    words = [str(part) for part in command]
    try:
        done = subprocess.run(words, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # noqa: S603
    except OSError as error:
        raise CannotCompileError(f"cmake cannot be started: {error}") from error
    if done.returncode:
        last = "\n".join(done.stdout.strip().splitlines()[-20:])
        raise CannotCompileError(f"cmake ended with exit status {done.returncode}:\n{last}")


def main() -> int:
    """Compile the library where this package lies."""
    try:
        path = compile_into(FOLDER)
    except CannotCompileError as error:
        sys.stderr.write(f"speccompile: the kernels could not be compiled: {error}\n")
        return 1
    sys.stderr.write(f"speccompile: compiled {path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
