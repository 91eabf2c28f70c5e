"""The kernels' own tests in C++ (native/tests), compiled with warnings as errors: as they are released, and with checks
of addresses and undefined behaviour."""

import os
import subprocess
from pathlib import Path

import pytest

from speccompile.native import packaging

pytestmark = pytest.mark.sweep("the kernels are compiled twice more")

SANITIZERS = (
    "address,undefined,float-cast-overflow"  # the last is part of what clang calls undefined, not of what g++ does
)


def run(*command: object) -> None:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    assert done.returncode == 0, "\n".join((done.stdout + done.stderr).splitlines()[-60:])


@pytest.fixture(scope="module")
def cmake() -> Path:
    try:
        return Path(packaging._cmake())
    except packaging.CannotCompileError as error:
        pytest.skip(str(error))


def can_compile(cmake: Path, folder: Path, flags: str) -> bool:
    """Return whether a program that does nothing can be compiled with these flags, and runs."""
    folder.mkdir()
    (folder / "main.cpp").write_text("int main() { return 0; }\n")
    (folder / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.18)\nproject(nothing LANGUAGES CXX)\nadd_executable(nothing main.cpp)\n"
    )
    commands = (
        ["-S", folder, "-B", folder / "build", *packaging._generator(), f"-DCMAKE_CXX_FLAGS={flags}"],
        ["--build", folder / "build"],
    )
    words = [[str(part) for part in (cmake, *command)] for command in commands] + [[str(folder / "build" / "nothing")]]
    return all(subprocess.run(each, capture_output=True).returncode == 0 for each in words)


@pytest.mark.parametrize("sanitizers", ["", SANITIZERS], ids=["released", "sanitized"])
def test_the_tests_in_cpp(cmake, tmp_path, sanitizers):
    if not can_compile(cmake, tmp_path / "plain", ""):
        pytest.skip("found no C++ compiler")
    if sanitizers and not can_compile(cmake, tmp_path / "checked", f"-fsanitize={sanitizers}"):
        pytest.skip(f"the C++ compiler has no -fsanitize={sanitizers}")
    build, workers = tmp_path / "build", str(os.cpu_count() or 1)
    settings = {
        "SPECCOMPILE_SANITIZE": sanitizers,
        "SPECCOMPILE_TESTS": "ON",
        "SPECCOMPILE_RUNTIME": "OFF",
        "CMAKE_COMPILE_WARNING_AS_ERROR": "ON",
    }
    definitions = [f"-D{name}={value}" for name, value in settings.items()]
    run(cmake, "-S", packaging.FOLDER, "-B", build, *packaging._generator(), *definitions)
    run(cmake, "--build", build, "--parallel", workers)
    run(cmake.with_name("ctest"), "--test-dir", build, "--parallel", workers, "--output-on-failure")
