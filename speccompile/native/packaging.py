"""Compile the kernels and the runtime: when the package is built or installed, or later by
`python -m speccompile.native.packaging`.

It needs a C++17 compiler (g++ or clang++) and CMake, which pip installs. If either is missing, the package is built
without C++ code and reports it. $SPECCOMPILE_NATIVE changes that: "require" makes it an error, "kernels" omits the
runtime, "skip" compiles nothing.
"""

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from speccompile.native.compile_progress import CompileProgress
from speccompile.native.locate import FOLDER, PREFIX

VARIABLE = "SPECCOMPILE_NATIVE"
TARGET = "speccompile_kernels"
RUNTIME = "speccompile_installed"
WITHOUT_RUNTIME = 3
"""Exit status: the kernels were compiled, the runtime was not."""


class CannotCompileError(Exception):
    """Compilation failure: a missing program, or the last lines of the compiler."""


@dataclass(frozen=True)
class Compiled:
    """Result of a compilation. kernels: their library. runtime: its folder, or None. problem: why the runtime is
    missing; None also if it was not requested. seconds: total time."""

    kernels: Path
    runtime: Path | None
    problem: str | None
    seconds: float


def compile_into(folder: Path, *, runtime: bool = True, tests: bool = False, scratch: Path | None = None) -> Compiled:
    """Compile the kernels and the runtime into `folder`, and replace existing ones.

    tests: also compile the test programs. scratch: build folder to reuse next time. Raise CannotCompileError if the
    kernels fail. A failure of the runtime is part of the result, and an existing runtime is then removed.
    """
    start = perf_counter()
    cmake = _cmake()
    _check_compiler()
    folder.mkdir(parents=True, exist_ok=True)
    with _folder(scratch) as build, TemporaryDirectory(dir=folder, prefix=".part") as part:
        problem, installed = None, None
        if runtime:
            try:
                installed = _compile_all(cmake, build, Path(part) / PREFIX, tests)
            except CannotCompileError as error:
                problem = str(error)
        if installed is None:
            _configure(cmake, build, "-DSPECCOMPILE_RUNTIME=OFF")
            _build(cmake, build, TARGET)
        (built,) = [path for path in build.iterdir() if path.name.startswith(f"lib{TARGET}.")]
        shutil.copy(built, part)
        # Rename, do not overwrite: a process that has the old library open keeps it.
        kernels = (Path(part) / built.name).replace(folder / built.name)
        if (folder / PREFIX).exists():
            (folder / PREFIX).rename(Path(part) / "old")
        if installed is not None:
            installed = installed.replace(folder / PREFIX)
    return Compiled(kernels, installed, problem, perf_counter() - start)


@contextmanager
def _folder(wanted: Path | None) -> Iterator[Path]:
    if wanted is None:
        with TemporaryDirectory() as folder:
            yield Path(folder)
    else:
        wanted.mkdir(parents=True, exist_ok=True)
        yield wanted


def _compile_tests(cmake: str, build: Path) -> None:
    wanted = {"RUNTIME": "ON", "NO_LINKS": "OFF", "TESTS": "ON"}  # all explicit: CMake caches earlier settings
    settings = (f"-DSPECCOMPILE_{name}={value}" for name, value in wanted.items())
    _configure(cmake, build, *settings, "-DCMAKE_INSTALL_LIBDIR=lib")
    _build(cmake, build, "all")


def _compile_all(cmake: str, build: Path, prefix: Path, tests: bool) -> Path:
    if tests:
        _compile_tests(cmake, build)
    else:
        # A wheel can hold no symbolic links, and its library folder is always called lib.
        _configure(cmake, build, "-DSPECCOMPILE_RUNTIME=ON", "-DSPECCOMPILE_NO_LINKS=ON", "-DCMAKE_INSTALL_LIBDIR=lib")
        _build(cmake, build, TARGET, RUNTIME)
    _run(cmake, "--install", build, "--prefix", prefix, "--strip")
    return prefix


def _configure(cmake: str, build: Path, *settings: str) -> None:
    _run(cmake, "-S", FOLDER, "-B", build, "-DCMAKE_BUILD_TYPE=Release", *settings, *_generator())


def _build(cmake: str, build: Path, *targets: str) -> None:
    with CompileProgress() as progress:
        _run(cmake, "--build", build, "--parallel", os.cpu_count() or 1, "--target", *targets, read=progress.read)


def _cmake() -> str:
    if importlib.util.find_spec("cmake") is not None:
        from cmake import CMAKE_BIN_DIR

        return str(Path(CMAKE_BIN_DIR) / "cmake")
    found = shutil.which("cmake")
    if found is None:
        raise CannotCompileError("found no cmake: pip install cmake")
    return found


def _check_compiler() -> None:
    if not os.environ.get("CXX") and not any(map(shutil.which, ("c++", "g++", "clang++"))):
        raise CannotCompileError("found no C++17 compiler: c++, g++ or clang++, or $CXX")


def _generator() -> list[str]:
    """Return the options for Ninja if pip has installed it: a machine with a compiler may lack make."""
    if importlib.util.find_spec("ninja") is None:
        return []
    from ninja import BIN_DIR

    return ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={Path(BIN_DIR) / 'ninja'}"]


def _run(*command: object, read: Callable[[str], object] | None = None) -> None:
    """Run CMake. read: gets each line of its output. Raise CannotCompileError, with the last lines, if it fails."""
    words, last = [str(part) for part in command], deque[str](maxlen=20)
    try:
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:  # noqa: S603
            assert process.stdout is not None
            for line in process.stdout:
                last.append(line.rstrip())
                if read is not None:
                    read(line)
    except OSError as error:
        raise CannotCompileError(f"cmake cannot be started: {error}") from error
    if process.returncode:
        text = "\n".join(last).strip()
        raise CannotCompileError(f"cmake ended with exit status {process.returncode}:\n{text}")


def main(arguments: list[str] | None = None) -> int:
    """Compile into this package's folder. Return 1 if the kernels fail, 3 if only the runtime fails."""
    parser = argparse.ArgumentParser(
        prog="python -m speccompile.native.packaging", description="Compile the kernels and the runtime."
    )
    parser.add_argument("--scratch", type=Path, help="keep what is compiled here: the next time is faster")
    parser.add_argument("--tests", action="store_true", help="compile the programs of the tests as well")
    chosen = parser.parse_args(arguments)
    try:
        compiled = compile_into(FOLDER, tests=chosen.tests, scratch=chosen.scratch)
    except CannotCompileError as error:
        sys.stderr.write(f"speccompile: the kernels could not be compiled: {error}\n")
        return 1
    sys.stderr.write(f"speccompile: compiled {compiled.kernels}\n")
    if compiled.problem is not None:
        sys.stderr.write(f"speccompile: the runtime in C++ could not be compiled: {compiled.problem}\n")
        return WITHOUT_RUNTIME
    sys.stderr.write(f"speccompile: compiled {compiled.runtime}, all in {compiled.seconds:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
