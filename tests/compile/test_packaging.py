"""The package as pip builds it: with the kernels and the runtime where a C++17 compiler is; elsewhere without them, and
saying so.

Nothing is downloaded: the environment of the tests has what a build needs.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import pytest

from speccompile import __version__, native
from speccompile.native import locate, packaging

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "scripts/examples"
LIBRARY = f"speccompile/native/{native.FILE.name}"
INSTALLED = f"speccompile/native/{locate.PREFIX}"
COMPILER = os.environ.get("CXX") or next(filter(shutil.which, ("c++", "g++", "clang++")), None)
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++17 compiler is here: c++, g++ or clang++, or $CXX")
NO_COMPILER = "the kernels could not be compiled: found no C++17 compiler: c++, g++ or clang++, or $CXX"
ONCE_MORE = "compiles all of the C++ once more"
Hook = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the project as it is in a fresh clone, but for the tests."""
    folder = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    unwanted = shutil.ignore_patterns("__pycache__", "*.so", "*.dylib", locate.PREFIX)
    shutil.copytree(ROOT / "speccompile", folder / "speccompile", ignore=unwanted)
    return folder


@pytest.fixture(scope="module")
def compiling(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return variables for a compiler that optimizes nothing: a fifth of the time, and no test here is about speed."""
    program = tmp_path_factory.mktemp("compiler") / "c++"
    program.write_text(f'#!/bin/sh\nexec {COMPILER} "$@" -O0\n')
    program.chmod(0o755)
    return {"CXX": str(program)}


@pytest.fixture(scope="module")
def without_compiler(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return variables of a machine on which no program is found, for Python is named by its path."""
    return {"PATH": str(tmp_path_factory.mktemp("nothing")), "CXX": ""}


def python(*arguments: str, variables: dict[str, str], folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run Python with these variables changed; the message of a failure has the whole output."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPECCOMPILE_", "PYTHON"))}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder, env=kept | variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def wheel(source: Path, output: Path, variables: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    options = ("--no-deps", "--no-index", "--no-build-isolation", "--no-cache-dir", "--verbose")
    return python(
        *("-m", "pip", "wheel", *options, "--wheel-dir", str(output), str(source)),
        variables=variables, folder=output,
    )  # fmt: skip


def names_in(folder: Path) -> tuple[str, set[str]]:
    """Return the name of the only wheel in a folder, and what it holds."""
    (file,) = folder.glob("*.whl")
    with ZipFile(file) as archive:
        return file.name, set(archive.namelist())


def sources() -> set[str]:
    """Return what the library is compiled from, as paths in the package."""
    unwanted = {"tests", "__pycache__", locate.PREFIX}
    files = [
        path for path in packaging.FOLDER.rglob("*") if path.is_file() and path.suffix not in (".py", ".so", ".md")
    ]
    return {str(path.relative_to(ROOT)) for path in files if not unwanted & set(path.relative_to(ROOT).parts)}


def runtime() -> set[str]:
    """Return what is installed of the runtime, as paths in the package. A wheel has no symbolic links."""
    package = ("config", "config-version", "targets", "targets-release")
    return {
        *(
            f"{INSTALLED}/lib/{name}"
            for name in ("libspeccompile.so", "libspeccompile.so.1", "libtriton_speccompile.so")
        ),
        *(f"{INSTALLED}/lib/cmake/speccompile/speccompile-{name}.cmake" for name in package),
        *(f"{INSTALLED}/include/speccompile.{suffix}" for suffix in ("h", "hpp")),
        f"{INSTALLED}/lib/pkgconfig/speccompile.pc",
        f"{INSTALLED}/bin/speccompile-native",
    }


@pytest.fixture(scope="module")
def compiled(source: Path, compiling: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the wheel of a machine with a compiler."""
    output = tmp_path_factory.mktemp("compiled")
    run = wheel(source, output, compiling | {"SPECCOMPILE_NATIVE": "require"})
    assert run.returncode == 0, run.stdout
    return output


@pytest.mark.sweep(ONCE_MORE)
@needs_compiler
def test_wheel_holds_what_is_compiled_and_is_for_what_auditwheel_says(compiled: Path) -> None:
    name, files = names_in(compiled)
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    if platform.startswith("linux_"):
        shown = python("-m", "auditwheel", "show", "--json", name, variables={}, folder=compiled)
        platform = json.loads(shown.stdout[shown.stdout.index("{") :])["overall_tag"]
        assert platform.startswith("manylinux_"), "every library that is not Linux's own is linked in"
    assert name == f"speccompile-{__version__}-py3-none-{platform}.whl"
    assert LIBRARY in files
    ours = {name for name in files if name.startswith("speccompile/native/") and not name.endswith(".py")}
    assert ours == {LIBRARY} | sources() | runtime()


@pytest.fixture(params=["a checkout", pytest.param("a wheel", marks=pytest.mark.sweep(ONCE_MORE))])
def installed(request: pytest.FixtureRequest) -> Path:
    """Return the folder whose package `speccompile` has the runtime."""
    if request.param == "a wheel":
        return request.getfixturevalue("site")
    if not packaging.FOLDER.joinpath(locate.PREFIX).exists():
        pytest.skip("the runtime is not compiled here: scripts/setup")
    return ROOT


@pytest.fixture(scope="module")
def site(compiled: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of packages, with the one that was compiled."""
    (file,), folder = compiled.glob("*.whl"), tmp_path_factory.mktemp("installed") / "site"
    options = ("--no-deps", "--no-index", "--no-compile", "--target", str(folder))
    run = python("-m", "pip", "install", *options, str(file), variables={}, folder=folder.parent)
    assert run.returncode == 0, run.stdout
    return folder


@pytest.mark.sweep(ONCE_MORE)
@needs_compiler
def test_installed_package_finds_its_kernels(site: Path, tmp_path: Path) -> None:
    code = f"import sys; sys.path.insert(0, {str(site)!r}); from speccompile import native"
    run = python(
        "-c", f"{code}; print(native.library(), native.paths(), native.kernels())", variables={}, folder=tmp_path
    )
    library, *paths, used = run.stdout.split()
    assert Path(library) == site / LIBRARY
    assert paths[0].strip("[',]") == used


@needs_compiler
def test_installed_package_tells_cmake_where_its_runtime_is(
    installed: Path, compiling: dict[str, str], tmp_path: Path
) -> None:
    variables = {"PYTHONPATH": str(installed)}
    run = python("-m", "speccompile.native", "--cmake-dir", variables=variables, folder=tmp_path)
    assert Path(run.stdout.strip()) == installed / INSTALLED / "lib/cmake/speccompile"
    settings = (f"-Dspeccompile_DIR={run.stdout.strip()}", f"-DCMAKE_CXX_COMPILER={compiling['CXX']}")
    packaging._run(packaging._cmake(), "-S", EXAMPLES, "-B", tmp_path / "build", *packaging._generator(), *settings)
    packaging._run(packaging._cmake(), "--build", tmp_path / "build")
    said = subprocess.run([tmp_path / "build" / "stream"], capture_output=True, text=True)
    assert said.stderr.startswith("usage: ")


@pytest.mark.sweep(ONCE_MORE)
@needs_compiler
def test_library_of_a_wheel_is_linked_by_its_name(site: Path, compiling: dict[str, str], tmp_path: Path) -> None:
    """Link by a linker script where the wheel has no symbolic link."""
    prefix = site / INSTALLED
    program = tmp_path / "stream"
    flags = ("-I", str(prefix / "include"), "-L", str(prefix / "lib"), "-lspeccompile", f"-Wl,-rpath,{prefix}/lib")
    packaging._run(compiling["CXX"], "-std=c++17", EXAMPLES / "stream.cpp", *flags, "-pthread", "-o", program)
    assert subprocess.run([program], capture_output=True, text=True).stderr.startswith("usage: ")


@pytest.mark.sweep(ONCE_MORE)
@needs_compiler
def test_installed_command_is_the_program(site: Path, tmp_path: Path) -> None:
    run = python(
        str(site / "bin/speccompile-native"), "--version", variables={"PYTHONPATH": str(site)}, folder=tmp_path
    )
    assert (run.returncode, run.stdout.split()[-1]) == (0, __version__)


@pytest.mark.sweep(ONCE_MORE)
@needs_compiler
def test_wheel_without_a_compiler_is_for_any_platform_and_says_so_once(
    compiled: Path, source: Path, without_compiler: dict[str, str], tmp_path: Path
) -> None:
    """Build behind a build that left a library in the folder it builds in."""
    assert list(source.glob(f"build/lib*/{LIBRARY}"))
    run = wheel(source, tmp_path, without_compiler)
    assert run.returncode == 0, run.stdout
    assert run.stdout.count("could not be compiled") == 1
    assert NO_COMPILER in run.stdout
    assert "installed without them, and runs as exactly, but slower: `speccompile doctor`" in run.stdout
    name, files = names_in(tmp_path)
    assert name == f"speccompile-{__version__}-py3-none-any.whl"
    assert LIBRARY not in files
    assert not runtime() & files
    assert sources() <= files


@pytest.fixture
def hook(source: Path, tmp_path: Path) -> Hook:
    """Return one of the functions that pip calls to build: faster than pip, and it says the same."""

    def call(name: str, variables: dict[str, str]) -> "subprocess.CompletedProcess[str]":
        code = f"from setuptools import build_meta; build_meta.{name}({str(tmp_path)!r})"
        return python("-P", "-c", code, variables=variables, folder=source)

    return call


def test_kernels_can_be_required(hook: Hook, without_compiler: dict[str, str], tmp_path: Path) -> None:
    run = hook("build_wheel", without_compiler | {"SPECCOMPILE_NATIVE": "require"})
    assert run.returncode != 0
    assert "found no C++17 compiler" in run.stdout
    assert list(tmp_path.glob("*.whl")) == []


def test_kernels_can_be_skipped(hook: Hook, tmp_path: Path) -> None:
    run = hook("build_wheel", {"SPECCOMPILE_NATIVE": "skip"})
    assert run.returncode == 0, run.stdout
    assert "could not be compiled" not in run.stdout
    name, files = names_in(tmp_path)
    assert name.endswith("-py3-none-any.whl")
    assert LIBRARY not in files


@pytest.mark.sweep("compiles the kernels once more")
@needs_compiler
def test_runtime_that_does_not_compile_is_told_and_the_kernels_stay(
    hook: Hook, compiling: dict[str, str], tmp_path: Path
) -> None:
    """Build with a compiler that refuses every source of the runtime."""
    program = tmp_path / "c++"
    refuse = "echo this one is broken >&2; exit 1"
    program.write_text(
        f'#!/bin/sh\ncase "$*" in *SPECCOMPILE_VERSION*) {refuse} ;; esac\nexec {compiling["CXX"]} "$@"\n'
    )
    program.chmod(0o755)
    run = hook("build_wheel", {"CXX": str(program)})
    required = hook("build_wheel", {"CXX": str(program), "SPECCOMPILE_NATIVE": "require"})
    assert run.returncode == 0, run.stdout
    assert run.stdout.count("speccompile: the runtime in C++ could not be compiled: ") == 1
    assert "this one is broken" in run.stdout
    assert "speccompile: it is installed without it, and runs bundles in Python alone" in run.stdout
    name, files = names_in(tmp_path)
    assert "-none-any" not in name
    assert LIBRARY in files
    assert not runtime() & files
    assert required.returncode != 0
    assert "this one is broken" in required.stdout


@pytest.mark.sweep("compiles the kernels once more")
@needs_compiler
def test_editable_install_compiles_where_the_sources_lie(
    hook: Hook, source: Path, compiling: dict[str, str], without_compiler: dict[str, str]
) -> None:
    library = source / LIBRARY
    run = hook("build_editable", compiling | {"SPECCOMPILE_NATIVE": "kernels"})
    assert run.returncode == 0, run.stdout
    assert not (source / INSTALLED).exists()
    first = library.stat()
    # One that somebody may be running stays, unless it is of other sources for all that is known.
    assert hook("build_editable", {"SPECCOMPILE_NATIVE": "skip"}).returncode == 0
    assert library.stat() == first
    run = hook("build_editable", without_compiler)
    assert run.returncode == 0, run.stdout
    assert run.stdout.count(NO_COMPILER) == 1
    assert not library.exists()
    assert not (source / INSTALLED).exists()


def test_source_distribution_holds_the_sources_and_no_library(hook: Hook, source: Path, tmp_path: Path) -> None:
    (source / LIBRARY).write_bytes(b"of this machine")
    run = hook("build_sdist", {})
    (source / LIBRARY).unlink()
    assert run.returncode == 0, run.stdout
    (file,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(file) as archive:
        files = {name.partition("/")[2] for name in archive.getnames()}
    assert sources() | {"pyproject.toml", "speccompile/native/packaging.py"} <= files
    assert LIBRARY not in files


def test_compiler_that_fails_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("CXX", "/bin/false")
    assert packaging.main([]) == 1
    assert "the kernels could not be compiled: cmake ended with exit status 1:\n" in capsys.readouterr().err


def test_machine_without_cmake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(packaging.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(packaging.CannotCompileError, match="found no cmake: pip install cmake"):
        packaging.compile_into(tmp_path)


def test_cmake_that_does_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CXX", "/bin/false")
    monkeypatch.setattr(packaging, "_cmake", lambda: str(tmp_path))
    with pytest.raises(packaging.CannotCompileError, match="cmake cannot be started: "):
        packaging.compile_into(tmp_path)
