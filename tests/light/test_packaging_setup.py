"""scripts/setup: what it does again and what not, with a Python that only writes down what it is asked to do."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = """#!/bin/sh
case "$*" in
    "-c "*) exit 0 ;;
    *packaging*)
        echo compile >>calls
        test ! -e compiler-fails || exit 1
        case "$*" in *" --scratch .venv/native-"*) ;; *) exit 2 ;; esac
        echo library >speccompile/native/libspeccompile_kernels.so
        test ! -e runtime-fails || exit 3
        mkdir -p speccompile/native/installed ;;
    *) echo "install $SPECCOMPILE_NATIVE" >>calls ;;
esac
"""
PROGRAMS = ("bash", "cat", "dirname", "env", "find", "grep", "mkdir", "rm", "sh", "sha256sum", "sort", "xargs")
SOURCES = (
    *("kernels/path.cpp", "kernels/path.h", "runtime/loop.cpp", "include/speccompile.hpp", "abi/exports.map"),
    *("CMakeLists.txt", "cmake/install.cmake", "cmake/speccompile.pc.in", "packaging.py", "setuptools_commands.py"),
)
Setup = Callable[[], list[str]]


def script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout with an environment, and beside it a folder of programs with a compiler."""
    folder = tmp_path.resolve() / "checkout"
    for name in SOURCES:
        script(folder / "speccompile/native" / name, name)
    script(folder / "pyproject.toml", "[project]")
    script(folder / ".venv/bin/python", PYTHON)
    script(folder / ".venv/bin/pip", f"#!{folder}/.venv/bin/python")
    (folder / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/setup", folder / "scripts")
    programs = folder.with_name("programs")
    script(programs / "g++", "#!/bin/sh")
    for name in PROGRAMS:
        (programs / name).symlink_to(str(shutil.which(name)))
    return folder


@pytest.fixture
def setup(checkout: Path) -> Setup:
    """Run scripts/setup. Returns what Python was asked to do, then what it said."""

    def run() -> list[str]:
        calls = checkout / "calls"
        calls.write_text("")
        variables = {name: value for name, value in os.environ.items() if name not in ("CXX", "SPECCOMPILE_NATIVE")}
        variables["PATH"] = str(checkout.with_name("programs"))
        done = subprocess.run([checkout / "scripts/setup"], env=variables, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (0, "")
        return calls.read_text().splitlines() + done.stderr.splitlines()

    return run


@pytest.fixture
def library(checkout: Path) -> Path:
    return checkout / "speccompile/native/libspeccompile_kernels.so"


@pytest.fixture
def runtime(checkout: Path) -> Path:
    return checkout / "speccompile/native/installed"


COMPILES = ["compile", "setup: compiling the kernels and the runtime in C++ (minutes, the first time)", "setup: ready"]


def test_everything_is_done_once(setup: Setup, library: Path, runtime: Path) -> None:
    calls = setup()
    assert calls[:3] == ["install ", "install skip", "compile"]
    assert calls[-2:] == COMPILES[1:]
    assert library.exists()
    assert runtime.exists()
    assert setup() == []


@pytest.mark.parametrize("name", SOURCES)
def test_other_sources_are_compiled_and_nothing_is_installed(setup: Setup, checkout: Path, name: str) -> None:
    setup()
    (checkout / "speccompile/native" / name).write_text("other")
    assert setup() == COMPILES
    assert setup() == []


def test_other_tests_are_not_what_a_library_is_compiled_from(setup: Setup, checkout: Path) -> None:
    setup()
    script(checkout / "speccompile/native/tests/rows.cpp", "a test")
    assert setup() == []


def test_what_is_installed_is_no_source(setup: Setup, runtime: Path) -> None:
    setup()
    script(runtime / "include/speccompile.h", "a copy")
    assert setup() == []


def test_what_is_gone_is_compiled_again(setup: Setup, library: Path, runtime: Path) -> None:
    setup()
    library.unlink()
    assert setup() == COMPILES
    runtime.rmdir()
    assert setup() == COMPILES
    assert setup() == []


def test_other_requirements_are_installed(setup: Setup, checkout: Path) -> None:
    setup()
    (checkout / "pyproject.toml").write_text("other")
    assert [call for call in setup() if not call.startswith("setup: ")] == ["install ", "install skip"]


def test_no_compiler_is_told_once_and_one_that_comes_is_used(
    setup: Setup, checkout: Path, library: Path, runtime: Path
) -> None:
    compiler = checkout.with_name("programs") / "g++"
    setup()
    compiler.rename(compiler.with_name("hidden"))
    told, *others = setup()
    assert told.startswith("setup: found no C++17 compiler, so bundles will run without the kernels: ")
    assert others == ["setup: hint: apt install g++", "setup: ready"]
    assert not library.exists()
    assert not runtime.exists()
    assert setup() == []
    compiler.with_name("hidden").rename(compiler)
    assert setup() == COMPILES


def test_compiler_that_fails_is_tried_again_and_stops_nothing(
    setup: Setup, checkout: Path, library: Path, runtime: Path
) -> None:
    setup()
    (checkout / "compiler-fails").touch()
    (checkout / "speccompile/native/kernels/path.cpp").write_text("other")
    for _ in range(2):
        assert setup() == COMPILES[:2]
        assert not library.exists()
        assert not runtime.exists()
    (checkout / "compiler-fails").unlink()
    assert setup() == COMPILES


def test_runtime_that_fails_is_tried_again_and_the_kernels_stay(setup: Setup, checkout: Path, library: Path) -> None:
    (checkout / "runtime-fails").touch()
    assert setup()[-1] == COMPILES[1]
    assert library.exists()
    (checkout / "runtime-fails").unlink()
    assert setup() == COMPILES
