"""What doctor says of the kernels for this processor, in use or not, and the note of those who run without them."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
from click.testing import CliRunner
from onnxruntime.datasets import get_example

from speccompile import native
from speccompile.cli import doctor, exit_codes
from speccompile.cli.main import group
from speccompile.runtime.devices import sessions
from speccompile.runtime.devices.protobuf import bytes_field

COMPILED = native.FILE
needs_kernels = pytest.mark.skipif(not COMPILED.is_file(), reason="the kernels were not compiled here")
HINT = "install a C++17 compiler (g++ or clang++), then: python -m speccompile.native.packaging"


@pytest.fixture(autouse=True)
def _as_installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(native.VARIABLE, raising=False)
    sessions._note.cache_clear()
    yield
    sessions._note.cache_clear()


@pytest.fixture
def missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where a library would be looked for; none is there."""
    path = tmp_path / native.FILE.name
    monkeypatch.setattr(native, "FILE", path)
    return path


def said() -> list[str]:
    """Return Doctor's lines from the kernels on."""
    lines = CliRunner().invoke(doctor.command).stdout.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("kernels "))
    return lines[first : lines.index("")]


def found() -> dict[str, Any]:
    return json.loads(CliRunner().invoke(doctor.command, ["--json"]).stdout)


@needs_kernels
def test_kernels_in_use_and_those_that_could_be() -> None:
    paths = native.paths()
    line, behind = said()[:2]
    assert line.split()[:2] == ["kernels", paths[0]]
    assert behind.startswith("onnxruntime ")
    assert all(path in line for path in paths)
    data = found()
    assert data["machine"]["kernel_paths"] == paths
    assert (data["machine"]["kernels"], data["machine"]["kernels_absence"]) == (paths[0], None)
    assert data["can_run_kernels"]["possible"]


def test_kernels_that_were_not_compiled(missing: Path) -> None:
    kernels, *costs, hint, _, _, _ = said()
    assert kernels == "kernels      none, ONNX Runtime's own run instead: they were not compiled"
    assert hint.split(maxsplit=1) == ["hint", HINT]
    assert [line.split(maxsplit=1)[0] for line in costs] == ["cost"] * len(native.COSTS)
    data = found()
    assert data["machine"]["kernels"] == "none"
    assert data["machine"]["kernels_absence"] == {
        "problem": "they were not compiled",
        "hint": HINT,
        "wanted": False,
        "costs": list(native.COSTS),
    }
    assert data["can_run"]["possible"]
    assert data["can_run_kernels"] == {"possible": False, "reason": "they were not compiled"}


def test_kernels_that_were_compiled_for_another_machine(missing: Path) -> None:
    missing.write_bytes(b"\x7fELF, and then nothing of a library")
    assert said()[0].partition("instead: ")[2].startswith("they cannot be loaded: ")
    assert native.library() is None
    assert native.paths() == []
    assert native.kernels() == native.NONE


def test_kernels_that_are_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECCOMPILE_KERNELS", "none")
    kernels, *_, hint, _, _, _ = said()
    assert kernels.endswith("instead: they are switched off by $SPECCOMPILE_KERNELS")
    assert hint.endswith("unset SPECCOMPILE_KERNELS")


@needs_kernels
def test_one_path_of_the_kernels(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("SPECCOMPILE_KERNELS", "fastest")
    assert exit_codes.run(group, ["doctor"]) == 2
    assert capsys.readouterr() == (
        "",
        "error: $SPECCOMPILE_KERNELS is 'fastest', which this machine cannot run\n"
        f"hint: set it to one of {', '.join(native.paths())}, none, or unset it for the fastest\n"
        "help: speccompile explain SC009\n",
    )


def test_a_path_where_no_kernels_are(
    missing: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPECCOMPILE_KERNELS", "scalar")
    assert exit_codes.run(group, ["doctor"]) == 2
    assert "is 'scalar', which this machine cannot run: they were not compiled\n" in capsys.readouterr().err


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """Return a graph that names the kernels' domain, and runs without them."""
    model = Path(get_example("mul_1.onnx")).read_bytes() + bytes_field(6, native.DOMAIN.encode())
    path = tmp_path / "graph.onnx"
    path.write_bytes(model)
    onnxruntime.InferenceSession(model)
    return path


def open_twice(graph: Path) -> None:
    for _ in range(2):
        sessions.shared_session(graph.parent, graph.name, 1)


def test_running_without_the_kernels_is_told_once(graph: Path, missing: Path, caplog: pytest.LogCaptureFixture) -> None:
    open_twice(graph)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("speccompile", logging.WARNING)
    first, hint = record.getMessage().splitlines()
    assert first.startswith("note: the kernels for this processor are not in use: they were not compiled. ")
    assert hint == f"hint: {HINT}"


def test_nothing_is_told_where_the_user_has_switched_them_off(
    graph: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECCOMPILE_KERNELS", "none")
    open_twice(graph)
    assert caplog.records == []


@needs_kernels
def test_nothing_is_told_where_the_kernels_run(graph: Path, caplog: pytest.LogCaptureFixture) -> None:
    open_twice(graph)
    assert caplog.records == []
