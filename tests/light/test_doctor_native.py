"""What doctor says of the runtime in C++, and `python -m speccompile.native`, which says where it lies."""

import json
import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from speccompile import __version__, native
from speccompile.cli import doctor, smoke_tests
from speccompile.errors import SpeccompileError
from speccompile.native import __main__ as shell
from speccompile.native import locate

HINT = "install a C++17 compiler (g++ or clang++), then: python -m speccompile.native.packaging"
EVERY = ("lib/libspeccompile.so.1", "lib/libtriton_speccompile.so", "bin/speccompile-native")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a package in which nothing is compiled, with an onnxruntime beside it."""
    capi = tmp_path / "site" / "onnxruntime" / "capi"
    capi.mkdir(parents=True)
    (capi / "libonnxruntime.so.1.31.1").write_bytes(b"a library")

    def find_spec(name: str) -> SimpleNamespace:
        assert name == "onnxruntime"
        return SimpleNamespace(origin=str(capi.with_name("__init__.py")))

    def located() -> native.Locations:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(locate.importlib.util, "find_spec", find_spec)
            return locate.locations(tmp_path)

    for module in (native, shell):
        monkeypatch.setattr(module, "locations", located)
    return tmp_path


@pytest.fixture
def installed(package: Path) -> Path:
    """Return where all of the runtime is; the command says what the test lets it say."""
    prefix = package / locate.PREFIX
    for name in ("include", "lib/cmake/speccompile", "lib/pkgconfig", "bin"):
        (prefix / name).mkdir(parents=True)
    for name in EVERY:
        (prefix / name).write_text(f"#!/bin/sh\necho speccompile-native {__version__}\n")
        (prefix / name).chmod(0o755)
    return prefix


def test_locations_are_found_or_none(package: Path, installed: Path) -> None:
    found = native.locations()
    assert found == native.Locations(
        library=installed / "lib/libspeccompile.so.1",
        include=installed / "include",
        cmake=installed / "lib/cmake/speccompile",
        pkgconfig=installed / "lib/pkgconfig",
        command=installed / "bin/speccompile-native",
        triton=installed / "lib/libtriton_speccompile.so",
        onnxruntime=package / "site/onnxruntime/capi/libonnxruntime.so.1.31.1",
    )
    shutil.rmtree(installed)
    assert native.locations() == native.Locations(None, None, None, None, None, None, found.onnxruntime)


@pytest.mark.parametrize("spec", [None, SimpleNamespace(origin=None)])
def test_onnxruntime_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, spec: SimpleNamespace | None) -> None:
    monkeypatch.setattr(locate.importlib.util, "find_spec", lambda name: spec)
    assert locate.locations().onnxruntime is None


def test_a_shell_is_told(installed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shell.main(["--cmake-dir", "--command"]) == 0
    assert capsys.readouterr() == (f"{installed}/lib/cmake/speccompile\n{installed}/bin/speccompile-native\n", "")
    assert shell.main(list(shell.OPTIONS)) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(shell.OPTIONS)


@pytest.mark.usefixtures("package")
def test_a_shell_is_told_that_nothing_was_compiled(capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("--library", "--triton"):
        assert shell.main([option]) == 1
        problem = "speccompile: the runtime in C++ was not compiled"
        assert capsys.readouterr() == ("", f"{problem}\nhint: {HINT}\n")


def test_a_shell_is_told_what_is_missing(package: Path, installed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (installed / "lib/libtriton_speccompile.so").unlink()
    assert shell.main(["--triton"]) == 1
    assert capsys.readouterr().err == f"speccompile: the backend for Triton was not compiled\nhint: {HINT}\n"
    (package / "site/onnxruntime/capi/libonnxruntime.so.1.31.1").unlink()
    assert shell.main(["--onnxruntime"]) == 1
    problem = "speccompile: the package onnxruntime, or its library, is not installed"
    assert capsys.readouterr().err == f"{problem}\nhint: pip install onnxruntime\n"


def test_a_shell_must_ask_for_something(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        shell.main([])
    assert "expected at least one of --library, --include-dir, " in capsys.readouterr().err


def test_command_becomes_the_program(package: Path, installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[object] = []
    monkeypatch.setattr(os, "execv", lambda *arguments: called.append(arguments))
    monkeypatch.setattr(sys, "argv", ["speccompile-native", "inspect", "a bundle"])
    monkeypatch.delenv("SPECCOMPILE_ONNXRUNTIME", raising=False)
    shell.command()
    program = installed / "bin/speccompile-native"
    assert called == [(program, [str(program), "inspect", "a bundle"])]
    library = str(package / "site/onnxruntime/capi/libonnxruntime.so.1.31.1")
    assert os.environ["SPECCOMPILE_ONNXRUNTIME"] == library
    monkeypatch.setenv("SPECCOMPILE_ONNXRUNTIME", "another")
    shell.command()
    assert os.environ["SPECCOMPILE_ONNXRUNTIME"] == "another"


@pytest.mark.usefixtures("package")
def test_command_that_was_not_compiled(capsys: pytest.CaptureFixture[str]) -> None:
    assert shell.command() == 1
    assert capsys.readouterr() == ("", f"speccompile: the runtime in C++ was not compiled\nhint: {HINT}\n")


@pytest.mark.usefixtures("package")
def test_doctor_says_what_lacks() -> None:
    run = CliRunner().invoke(doctor.command)
    assert "c++ runtime  none: it was not compiled\n" in run.stdout
    assert "can run bundles in C++: no, it was not compiled\n" in run.stdout
    with pytest.raises(SpeccompileError, match="one that cannot run bundles in C") as raised:
        doctor.command.main(["--require", "run_native"], standalone_mode=False)
    assert raised.value.hint == HINT
    with pytest.raises(SystemExit, match=r"the runtime in C\+\+ was not compiled"):
        smoke_tests.TRIALS["run_native"]()


def test_doctor_says_where_it_is(installed: Path) -> None:
    run = CliRunner().invoke(doctor.command, ["--json"])
    assert json.loads(run.stdout)["machine"]["native_runtime"] == str(installed / "bin/speccompile-native")


def test_what_is_there_and_of_another_version_is_refused(installed: Path) -> None:
    (installed / "bin/speccompile-native").write_text("#!/bin/sh\necho speccompile-native 0.0.1\n")
    with pytest.raises(SystemExit, match=f"to be version {__version__}, got speccompile-native 0.0.1"):
        smoke_tests.TRIALS["run_native"]()


@pytest.mark.parametrize(
    ("library", "onnxruntime", "lacks"),
    [(None, "c", "to have spc_bundle_open"), ("c", "c", None), ("c", None, "to be ONNX Runtime, which has OrtGetApi")],
)
def test_libraries_are_loaded(
    installed: Path, monkeypatch: pytest.MonkeyPatch, library: str | None, onnxruntime: str | None, lacks: str | None
) -> None:
    class Loaded:
        def __init__(self, path: str) -> None:
            if Path(path).name.startswith("libspeccompile") and library:
                self.spc_bundle_open = None
            if Path(path).name.startswith("libonnxruntime") and onnxruntime:
                self.OrtGetApiBase = None

    monkeypatch.setattr(smoke_tests.ctypes, "CDLL", Loaded)
    if lacks is None:
        smoke_tests.TRIALS["run_native"]()
        return
    with pytest.raises(SystemExit, match=lacks):
        smoke_tests.TRIALS["run_native"]()
