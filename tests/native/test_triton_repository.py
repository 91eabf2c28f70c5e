"""`speccompile triton`, without a server."""

import json
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from speccompile.errors import EngineError
from speccompile.serving.triton import native, repository
from tests.light.fake_bundle import write_toy_bundle


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_toy_bundle(tmp_path / "bundle", batch_size=2)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "models"


@pytest.fixture
def cli(bundle: Path, output: Path, command_line: Any) -> Any:
    """Run `speccompile triton BUNDLE --output OUTPUT`: exit code, stdout, stderr."""
    return partial(command_line, "triton", bundle, "--output", output)


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write libraries of the native backend that take every bundle; none has any code."""
    folder = tmp_path / "compiled"
    folder.mkdir()
    for name in (native.BACKEND, native.RUNTIME, native.ONNXRUNTIME):
        (folder / name).write_text(name)
    monkeypatch.setenv(native.VARIABLE, str(folder / native.ONNXRUNTIME))
    monkeypatch.setattr(native, "try_bundle", lambda *_: None)
    return folder


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_a_repository_for_python(cli: Any, bundle: Path, output: Path) -> None:
    code, out, err = cli("--backend", "python", "--instances", 2, "--threads", 3, "--name", "a.model")
    assert (code, out, err) == (0, f"{output / 'a.model'}\n", "the python backend was taken: as asked for\n")
    model = output / "a.model"
    held = [f"1/bundle/{name}" for name in files(bundle)]
    assert files(model) == sorted([*held, "1/model.py", "config.pbtxt"])
    assert [path.name for path in output.iterdir()] == ["a.model"]
    manifest = "1/bundle/manifest.json"
    assert os.path.samefile(model / manifest, bundle / "manifest.json")  # noqa: PTH121
    config = (model / "config.pbtxt").read_text()
    for line in (
        'name: "a.model"', 'backend: "python"', "max_batch_size: 2", "dynamic_batching { }",
        "model_transaction_policy { decoupled: true }", "instance_group [ { kind: KIND_CPU count: 2 } ]",
        'parameters { key: "threads" value { string_value: "3" } }',
        'input [ { name: "text_input" data_type: TYPE_STRING dims: [ 1 ] optional: true } ]',
        'input [ { name: "input_ids" data_type: TYPE_INT64 dims: [ -1 ] optional: true allow_ragged_batch: true } ]',
        'output [ { name: "text_output" data_type: TYPE_STRING dims: [ 1 ] } ]',
    ):  # fmt: skip
        assert line in config.splitlines()


def test_a_repository_for_the_native_backend(cli: Any, output: Path, libraries: Path) -> None:
    code, out, _ = cli("--libraries", libraries, "--json")
    told = {"folder": str(output / "demo"), "backend": "native"}
    assert (code, json.loads(out)) == (0, told | {"reason": "it is compiled here, and takes this bundle"})
    assert {native.BACKEND, native.RUNTIME, native.ONNXRUNTIME} < {Path(name).name for name in files(output)}
    assert not (output / "demo/1/model.py").exists()
    assert 'backend: "speccompile"' in (output / "demo/config.pbtxt").read_text()


def test_the_libraries_are_those_that_are_installed(
    cli: Any, libraries: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lay the libraries out as `speccompile.native.locations` does."""
    backend = libraries / "lib" / native.BACKEND
    backend.parent.mkdir()
    (libraries / native.BACKEND).rename(backend)
    nothing = dict.fromkeys(("include", "cmake", "pkgconfig", "command"))
    found = native.native.Locations(
        library=libraries / native.RUNTIME, triton=backend, onnxruntime=libraries / native.ONNXRUNTIME, **nothing
    )
    monkeypatch.setattr(native.native, "locations", lambda: found)
    monkeypatch.delenv(native.VARIABLE)
    assert cli()[2] == "the native backend was taken: it is compiled here, and takes this bundle\n"
    held = {path.name: path.read_text() for path in (output / "demo" / "1").glob("lib*")}
    assert held == {name: name for name in (native.BACKEND, native.RUNTIME, native.ONNXRUNTIME)}
    monkeypatch.setattr(native.native, "locations", lambda: replace(found, onnxruntime=None))
    code, _, err = cli("--backend", "native")
    assert (code, "pip install onnxruntime, or name the library" in err) == (1, True)


def test_python_is_taken_where_the_native_backend_is_not_there(cli: Any, tmp_path: Path, output: Path) -> None:
    nothing = tmp_path / "nothing"
    assert cli("--libraries", nothing)[2].startswith(
        f"the python backend was taken: the native backend is not compiled in {nothing}: expected "
    )
    code, out, err = cli("--libraries", nothing, "--backend", "native")
    assert (code, out) == (1, "")
    assert "hint: install a C++17 compiler" in err
    assert files(output / "demo")[0] == "1/bundle/graphs/draft.onnx"  # the one before is still there


def test_the_native_backend_must_take_the_bundle(cli: Any, libraries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise EngineError("it has no such backend", hint="use --backend python")

    monkeypatch.setattr(native, "try_bundle", refuse)
    assert cli("--libraries", libraries)[2] == "the python backend was taken: it has no such backend\n"
    assert cli("--libraries", libraries, "--backend", "native")[0] == 1
    monkeypatch.setattr(native, "try_bundle", lambda *_: "no such tokenizer")
    assert cli("--libraries", libraries)[2] == "the python backend was taken: no such tokenizer\n"
    code, _, err = cli("--libraries", libraries, "--backend", "native")
    assert (code, err.splitlines()[0]) == (0, "this model will take token ids alone: no such tokenizer")


def test_an_environment_is_pythons(cli: Any, libraries: Path, output: Path, tmp_path: Path) -> None:
    assert cli("--libraries", libraries, "--environment", tmp_path / "venv")[2] == (
        "the python backend was taken: --environment is for Python\n"
    )
    line = f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{tmp_path / "venv"}" }} }}'
    assert line in (output / "demo/config.pbtxt").read_text().splitlines()
    code, _, err = cli("--libraries", libraries, "--environment", tmp_path, "--backend", "native")
    assert (code, err.splitlines()[-2]) == (2, "hint: leave one of them out")


def test_a_model_is_replaced_and_others_stay(cli: Any, bundle: Path, output: Path) -> None:
    cli("--name", "other", "--backend", "python")
    cli("--backend", "python", "--link")
    assert (output / "demo/1/bundle").readlink() == bundle.resolve()
    (output / "demo/left").write_text("of before")
    assert cli("--backend", "python")[0] == 0
    assert not (output / "demo/1/bundle").is_symlink()
    assert bundle.is_dir()
    assert not (output / "demo/left").exists()
    assert sorted(path.name for path in output.iterdir()) == ["demo", "other"]


def test_files_are_copied_where_they_cannot_be_linked(
    cli: Any, bundle: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    assert cli("--backend", "python")[0] == 0
    copied = output / "demo/1/bundle/manifest.json"
    assert copied.read_bytes() == (bundle / "manifest.json").read_bytes()
    assert copied.stat().st_nlink == 1


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--name", "a/b"], 2, "--name: received 'a/b', expected letters, digits, '.', '_' and '-'"),
        (["--engine", "none"], 2, "the bundle has no engine 'none': it has onnxruntime-cpu, other"),
        (["--backend", "c"], 2, "Invalid value for '--backend': 'c' is not one of"),
        (["--instances", "0"], 2, "Invalid value for '--instances'"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_written(
    cli: Any, output: Path, arguments: list[str], code: int, message: str
) -> None:
    found, out, err = cli(*arguments)
    assert (found, out) == (code, "")
    assert message in err
    assert "\nhint: " in err
    assert not output.exists()


def test_a_folder_that_is_no_bundle_is_refused(tmp_path: Path, command_line: Any) -> None:
    code, _, err = command_line("triton", tmp_path, "--output", tmp_path / "models")
    assert (code, "not a bundle" in err) == (1, True)
    code, _, err = command_line("triton", tmp_path)
    assert (code, "Missing option '--output'" in err) == (2, True)


def test_a_folder_that_is_not_ours_is_left_alone(cli: Any, output: Path) -> None:
    output.mkdir()
    (output / "notes").write_text("mine")
    code, _, err = cli("--backend", "python")
    assert (code, "not a model repository" in err, "\nhint: " in err) == (1, True, True)
    other = output / "demo"
    other.mkdir()
    (other / "config.pbtxt").write_text('name: "demo"')
    code, _, err = cli("--backend", "python")
    assert (code, "was not written by speccompile" in err) == (1, True)
    assert files(output) == ["demo/config.pbtxt", "notes"]
    assert cli("--backend", "python", "--name", "mine")[0] == 0
    (output / "notes").rename(output.with_name("notes"))
    code, _, err = cli("--backend", "python", "--output", output.with_name("notes"))
    assert (code, "is a file, expected a folder" in err) == (1, True)


@pytest.mark.parametrize("existing", [False, True])
def test_nothing_is_left_of_a_write_that_fails(
    cli: Any, output: Path, existing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if existing:
        cli("--backend", "python")
    before = files(output)

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(repository.shutil, "copytree", fail)
    code, out, err = cli("--backend", "python")
    assert (code, out) == (1, "")
    assert f"the repository {output} cannot be written: No space left on device" in err
    assert files(output) == before
    assert output.exists() == existing


def test_the_help_has_examples(cli: Any) -> None:
    code, out, _ = cli("--help")
    assert code == 0
    assert "speccompile triton build/demo --output models" in out
    assert "generate_stream" in out
