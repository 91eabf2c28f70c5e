"""What is installed of the runtime, by those who use it: CMake, pkg-config, a C compiler, an example service."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from speccompile import __version__
from speccompile.native import packaging
from tests.native.conftest import run

EXAMPLES = Path(__file__).resolve().parents[2] / "scripts" / "examples"
C_COMPILER = os.environ.get("CC") or next(filter(shutil.which, ("cc", "gcc", "clang")), None)
CXX_COMPILER = os.environ.get("CXX") or next(filter(shutil.which, ("c++", "g++", "clang++")), "c++")
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
C_PROGRAM = """#include <speccompile.h>
#include <stdio.h>
int main(void) { return printf("%s %d", spc_version(), spc_abi() == SPC_ABI) < 0; }
"""
PROJECT = """cmake_minimum_required(VERSION 3.18)
project(user LANGUAGES {languages})
{how}
add_executable(user main.{suffix})
target_link_libraries(user PRIVATE speccompile::speccompile)
"""


@pytest.fixture(scope="module")
def prefix(native_build: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the runtime as it is installed, in a folder that was moved afterwards."""
    folder = tmp_path_factory.mktemp("installation")
    run(packaging._cmake(), "--install", native_build, "--prefix", folder / "first")
    return (folder / "first").rename(folder / "moved")


@pytest.fixture(scope="module")
def stream(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the example, built by find_package."""
    return built(EXAMPLES, tmp_path_factory.mktemp("stream"), f"-DCMAKE_PREFIX_PATH={prefix}") / "stream"


def built(source: Path, build: Path, *settings: str) -> Path:
    """Return a project's build folder."""
    configured(source, build, *settings)
    run(packaging._cmake(), "--build", build)
    return build


def configured(source: Path, build: Path, *settings: str) -> None:
    warnings = f"-DCMAKE_CXX_FLAGS={' '.join(WARNINGS)}"
    run(packaging._cmake(), "-S", source, "-B", build, *packaging._generator(), warnings, *settings)


def project(folder: Path, languages: str, how: str) -> Path:
    """Return a user's project, of the C program."""
    suffix = "c" if languages == "C" else "cpp"
    folder.mkdir()
    (folder / f"main.{suffix}").write_text(C_PROGRAM)
    (folder / "CMakeLists.txt").write_text(PROJECT.format(languages=languages, how=how, suffix=suffix))
    return folder


def names_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}


def test_what_is_installed(prefix: Path) -> None:
    package = {f"speccompile-{name}.cmake" for name in ("config", "config-version", "targets", "targets-release")}
    libraries = set(prefix.rglob("libspeccompile.so*"))
    lib = min(libraries).parent
    assert {path.name for path in libraries} == {f"libspeccompile.so{end}" for end in ("", ".1", ".1.0.0")}
    assert {path.resolve().name for path in libraries} == {"libspeccompile.so.1.0.0"}
    assert names_in(prefix / "include") == {"speccompile.h", "speccompile.hpp", "speccompile_scheduler.hpp"}
    assert names_in(prefix / "bin") == {"speccompile-native"}
    assert names_in(lib / "cmake") == {f"speccompile/{name}" for name in package}
    assert names_in(lib / "pkgconfig") == {"speccompile.pc"}


def test_nothing_installed_names_a_folder_of_this_machine(prefix: Path, native_build: Path) -> None:
    places = [str(place).encode() for place in (prefix.with_name("first"), native_build, packaging.FOLDER)]
    for path in map(prefix.joinpath, names_in(prefix)):
        data = path.read_bytes()
        assert [place for place in places if place in data] == [], path


def test_image_without_python_is_small(prefix: Path, onnxruntime_library: Path) -> None:
    """Measure the files that the stage `native` of the Dockerfile copies: its target adds no others to its base."""
    package = onnxruntime_library.parents[1]
    copied = [*filter(Path.is_file, prefix.rglob("*")), onnxruntime_library, *package.glob("*LICENSE*")]
    copied += [package / "ThirdPartyNotices.txt", EXAMPLES.parents[1] / "LICENSE"]
    assert sum(path.stat().st_size for path in copied if not path.is_symlink()) <= 80e6


def test_command_says_the_package_s_version(prefix: Path) -> None:
    assert __version__ in run(prefix / "bin" / "speccompile-native", "--version").split()


@pytest.mark.skipif(C_COMPILER is None, reason="no C compiler is here: cc, gcc or clang, or $CC")
def test_header_is_plain_c(prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text(C_PROGRAM)
    command = (C_COMPILER, "-std=c11", *WARNINGS, "-c", tmp_path / "main.c", "-o", tmp_path / "main.o")
    run(*command, "-I", prefix / "include")


@pytest.mark.parametrize("header", ["speccompile.h", "speccompile.hpp", "speccompile_scheduler.hpp"])
def test_headers_are_cpp_17_and_stand_alone(prefix: Path, tmp_path: Path, header: str) -> None:
    for name in ("one", "other"):  # included twice in one program
        (tmp_path / f"{name}.cpp").write_text(f"#include <{header}>\n#include <{header}>\nvoid {name}() {{}}\n")
    (tmp_path / "main.cpp").write_text("void one(); void other(); int main() { one(); other(); }\n")
    sources = (tmp_path / name for name in ("one.cpp", "other.cpp", "main.cpp"))
    find = ("-I", prefix / "include", *link_flags(prefix))
    run(CXX_COMPILER, "-std=c++17", *WARNINGS, *sources, *find, "-o", tmp_path / "main")


def link_flags(prefix: Path) -> tuple[str, ...]:
    lib = min(prefix.rglob("libspeccompile.so")).parent
    return f"-L{lib}", "-lspeccompile", f"-Wl,-rpath,{lib}"


@pytest.mark.parametrize("languages", ["C", "CXX"])
def test_cmake_finds_the_package(prefix: Path, tmp_path: Path, languages: str) -> None:
    if languages == "C" and C_COMPILER is None:
        pytest.skip("no C compiler is here: cc, gcc or clang, or $CC")
    user = project(tmp_path / "user", languages, f"find_package(speccompile {__version__} REQUIRED)")
    build = built(user, tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    assert run(build / "user") == f"{__version__} 1"


def test_cmake_refuses_a_version_that_is_not_there(prefix: Path, tmp_path: Path) -> None:
    user = project(tmp_path / "user", "CXX", "find_package(speccompile 99 REQUIRED)")
    with pytest.raises(AssertionError, match=f"compatible with requested version(.|\n)*{__version__}"):
        configured(user, tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}")


def test_sources_are_part_of_another_project(tmp_path: Path) -> None:
    """Configure as FetchContent does. The other project keeps its own settings and its own installation."""
    how = f"""add_subdirectory({packaging.FOLDER} speccompile)
get_target_property(type speccompile::speccompile TYPE)
message(STATUS "type: ${{type}}, build type: '${{CMAKE_BUILD_TYPE}}'")"""
    user = project(tmp_path / "user", "CXX", how)
    cmake, build = packaging._cmake(), tmp_path / "build"
    said = run(cmake, "-S", user, "-B", build, *packaging._generator())
    assert "type: SHARED_LIBRARY, build type: ''" in said
    assert "libspeccompile" not in (build / "cmake_install.cmake").read_text()
    assert "libspeccompile" not in (build / "speccompile" / "cmake_install.cmake").read_text()


def test_pkg_config_finds_the_library(prefix: Path, tmp_path: Path) -> None:
    program = shutil.which("pkg-config") or shutil.which("pkgconf")
    if program is None:
        pytest.skip("neither pkg-config nor pkgconf is here")
    (folder,) = {path.parent for path in prefix.rglob("speccompile.pc")}
    found = subprocess.run(
        [program, "--cflags", "--libs", "speccompile"],
        env=os.environ | {"PKG_CONFIG_PATH": str(folder)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    flags = shlex.split(found.stdout)
    source, output = EXAMPLES / "stream.cpp", tmp_path / "stream"
    run(CXX_COMPILER, "-std=c++17", *WARNINGS, source, *flags, *link_flags(prefix)[2:], "-pthread", "-o", output)
    assert "usage: " in subprocess.run([output], capture_output=True, text=True).stderr


def test_example_is_short() -> None:
    assert len((EXAMPLES / "stream.cpp").read_text().splitlines()) <= 60


def test_example_tells_what_is_wrong(stream: Path, tmp_path: Path) -> None:
    done = subprocess.run([stream, tmp_path], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    first, *rest = done.stderr.splitlines()
    assert first.startswith("error: ")
    assert str(tmp_path) in first
    assert all(line.startswith("hint: ") for line in rest)
