"""Bundles, hashes and caches in C++: what Python's say, in the same words, and files that either may write."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from blake3 import blake3
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from speccompile.bundle import Manifest, open_bundle
from speccompile.bundle.hashes import hash_folder, write_hashes
from speccompile.bundle.manifest import canonical_json
from speccompile.machine import system
from speccompile.machine.environment import read_number_variable
from speccompile.runtime.devices.engine import process_memory
from tests.light import test_bundle_manifest, test_bundle_reader, test_system
from tests.light.bundle_example import LOCK, PROOF, manifest, write_bundle
from tests.light.test_bundle_reader import built, bundle  # noqa: F401  fixtures
from tests.native.bundle_lines import Lines, outcome

MORE = settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])

ADDED = (
    "expected a size of 0 or more",
    "expected an int of 64 bits",
    "expected a width as 'window' or 'window+1'",
    "expected a number from",
    "larger than any memory",
)
"""What only the runtime in C++ refuses, whose integers have an end."""

OTHER_WORDS = ("codec can't decode", "maximum recursion depth", "Exceeds the limit")
"""What Python says of the decoder that it uses."""


def check_same(ours: tuple[Any, ...], theirs: tuple[Any, ...]) -> None:
    """ours: the outcome in C++. What is returned is not compared."""
    if len(ours) == 3 and any(added in ours[1] for added in ADDED):
        return
    if len(theirs) == 3 and any(words in theirs[1] for words in OTHER_WORDS):
        ours, theirs = ((each[0], each[1].partition("expected JSON: ")[0], each[2]) for each in (ours, theirs))
    assert len(ours) == len(theirs)
    assert len(ours) == 1 or ours == theirs


@pytest.fixture(autouse=True)
def _both(lines: Lines, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let both runtimes open what the tests of Python's bundles open: they must agree."""

    def open_both(folder: Path, *, verify: bool = True) -> Any:
        ours = outcome(lambda: lines.ask("open", str(folder), verify=verify))
        check_same(ours, outcome(lambda: open_bundle(folder, verify=verify)))
        opened = open_bundle(folder, verify=verify)
        assert ours[0]["digest"] == opened.hashes.digest
        assert (ours[0]["lock"], ours[0]["proof"]) == (opened.lock, opened.proof)
        assert ours[0]["manifest"] == json.loads(canonical_json(opened.manifest.to_json()))
        return opened

    def read_both(data: object, file: str = "manifest.json") -> Manifest:
        if file == "manifest.json":
            path = tmp_path / "read.json"
            path.write_text(json.dumps(data))
            check_same(outcome(lambda: lines.ask("manifest", str(path))), outcome(lambda: Manifest.from_json(data)))
        return Manifest.from_json(data, file)

    monkeypatch.setattr(test_bundle_reader, "open_bundle", open_both)
    monkeypatch.setattr(test_bundle_manifest, "Manifest", SimpleNamespace(from_json=read_both))


# Those that put something in the place of Python's hash library are of Python alone.
for _module in (test_bundle_reader, test_bundle_manifest):
    for _name, _test in list(vars(_module).items()):
        if _name.startswith("test_") and "hash_library" not in _name and "cannot_be_read" not in _name:
            globals()[_name] = _test


def test_blake3_of_any_size_on_any_threads(lines: Lines, tmp_path: Path) -> None:
    dice, path = Random(1), tmp_path / "file"
    sizes = [0, 1, 63, 64, 65, *(dice.randrange(1 << 21) for _ in range(10))]
    sizes += [1024 * 2**k + more for k in range(12) for more in (-1, 0, 1, 1024, 1025)]
    content = dice.randbytes(max(sizes))
    for size in sizes:
        path.write_bytes(content[:size])
        expected = blake3(content[:size]).hexdigest()
        assert [lines.ask("blake3", str(path), threads=threads) for threads in (1, 3)] == [expected] * 2, size


def test_sha256(lines: Lines) -> None:
    for size in (0, 1, 54, 55, 56, 63, 64, 65, 119, 120, 1000):
        text = "ab€"[size % 3] * size
        assert lines.ask("sha256", text) == hashlib.sha256(text.encode()).hexdigest()


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=12,
)


@MORE
@given(value=JSON, indent=st.none() | st.integers(0, 2))
def test_json_is_read_and_written_as_python_does(lines: Lines, value: Any, indent: int | None) -> None:
    assert lines.ask("parse", json.dumps(value, indent=indent)).encode() == canonical_json(value)


@MORE
@given(value=JSON, data=st.data())
def test_what_is_no_json_is_said_in_python_s_words(lines: Lines, value: Any, data: st.DataObject) -> None:
    text = json.dumps(value, ensure_ascii=False)
    place = data.draw(st.integers(0, len(text)))
    added = data.draw(st.sampled_from(["", "}", "]", "{", '"', ",", "\\", "\\u12", "\n", "-", "1", "é"]))
    text = text[:place] + added + text[place + data.draw(st.integers(0, 2)) :]
    expected: tuple[Any, ...]
    try:
        expected = (canonical_json(json.loads(text)).decode(),)
    except json.JSONDecodeError as error:
        expected = ("SpeccompileError", str(error), None)
    except ValueError:  # numbers that are not finite, which no file of a bundle has
        return
    assert outcome(lambda: lines.ask("parse", text)) == expected


@MORE
@given(st.text("a./", max_size=12))
def test_paths_are_written_as_pathlib_does(lines: Lines, path: str) -> None:
    assert lines.ask("plain_path", path) == str(PurePosixPath(path))


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every place in a JSON value, as what it is in and the key or index there."""
    rows = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in rows:
        yield value, key
        yield from places(each)


def test_a_manifest_that_is_edited_anywhere(lines: Lines, tmp_path: Path) -> None:
    dice, path = Random(2), tmp_path / "manifest.json"
    values = [None, True, -1, 0, 3, 2.5, 10**20, "x", "window+1", "it's", [], {}, [1], {"a": 1}, [{"b": None}]]
    written = json.dumps(manifest().to_json())
    refused = 0
    for _ in range(700):
        data = json.loads(written)
        for _ in range(dice.choice([1, 1, 2])):
            holder, key = dice.choice(list(places(data)))
            if dice.random() < 0.2:
                holder.pop(key)
            elif dice.random() < 0.1 and isinstance(holder, dict):
                holder["another"] = 1
            else:
                holder[key] = dice.choice(values)
        path.write_text(json.dumps(data))
        ours = outcome(lambda: lines.ask("manifest", str(path)))
        check_same(ours, outcome(lambda data=data: Manifest.from_json(data)))
        refused += len(ours) == 3
    assert refused > 500


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.update(batch_size=0), "batch_size: expected a number from 1 to 65536, got 0"),
        (lambda data: data.update(depth=5), "depth: expected a number from 1 to 4, got 5"),
        (lambda data: data.update(tokens=2**40), "tokens: expected a number from 0 to 65536, got 1099511627776"),
        (lambda data: data.update(max_length=10**20), f"max_length: expected an int of 64 bits, got {10**20}"),
        (
            lambda data: data.update(batch_size=2**16, max_length=2**31 - 1),
            "batch_size rows of max_length are larger than any memory",
        ),
        (lambda data: resize(data, -1), "graphs[0]: outputs[0]: shape[1]: expected a size of 0 or more, got -1"),
        (
            lambda data: resize(data, "window+9999999999"),
            "graphs[0]: outputs[0]: shape[1]: expected a width as 'window' or 'window+1', got 'window+9999999999'",
        ),
        (lambda data: resize(data, 2**49), "the tensor 'path' of the graph 'verify' is larger than any memory"),
    ],
)
def test_sizes_that_only_python_can_hold_are_refused(
    lines: Lines, tmp_path: Path, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    data = manifest().to_json()
    change(data)
    (tmp_path / "manifest.json").write_text(json.dumps(data))
    hint = "build the bundle again with this speccompile"
    found = outcome(lambda: lines.ask("manifest", str(tmp_path / "manifest.json")))
    assert found == ("BundleError", f"manifest.json: {message}", hint)


def resize(data: dict[str, Any], size: int | str) -> None:
    """Give an output another size, and its buffer as well."""
    data["graphs"][0]["outputs"][0]["shape"][1] = size
    (buffer,) = (each for each in data["buffers"] if each["name"] == "path")
    buffer["shape"][1] = size


@pytest.mark.parametrize("name", ["a", "größe/b.c", "..a", "a:", "C:x", "a/..", "a/", "/a", "//a", " ", "a\tb"])
def test_which_paths_may_be_listed(lines: Lines, tmp_path: Path, name: str) -> None:
    folder = write_bundle(tmp_path / "demo")
    data = json.loads((folder / "hashes.json").read_bytes())
    data["files"][name] = {"blake3": "00", "bytes": 1}
    (folder / "hashes.json").write_bytes(canonical_json(data))
    ours = outcome(lambda: lines.ask("open", str(folder), verify=False))
    assert len(ours) == 3
    assert ours == outcome(lambda: open_bundle(folder, verify=False))


def test_paths_of_a_bundle(lines: Lines, tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "demo")
    for spelled in (f"{folder}/", f"{tmp_path}//./demo"):
        assert lines.ask("path", [spelled, "graphs/verify.onnx"]) == str(folder / "graphs" / "verify.onnx")
    ours = outcome(lambda: lines.ask("path", [str(folder), "graphs/it's.onnx"]))
    assert ours == outcome(lambda: open_bundle(folder).path("graphs/it's.onnx"))
    assert lines.ask("open", f"{folder}/")["lock"] == LOCK


def test_a_file_that_is_read_ahead(lines: Lines, tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "demo")
    weights, content = folder / "graphs" / "weights.bin", Random(2).randbytes((17 << 20) + 5)
    weights.write_bytes(content)
    write_hashes(folder, hash_folder(folder))
    assert len(outcome(lambda: lines.ask("open", str(folder), verify=True))) == 1
    for place in (0, 8 << 20, len(content) - 1):
        weights.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        ours = outcome(lambda: lines.ask("open", str(folder), verify=True))
        assert ours == outcome(lambda: open_bundle(folder))
        assert "the file was edited" in ours[1]


def test_an_engine_that_waits_for_its_device(lines: Lines, tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "demo")
    build = {"deferred": "no GPU here", "sources": {"verify": "graphs/verify.onnx"}, "settings": {}, "reports": {}}
    for settings_ in ({}, {"verify": {"opt": 1}}):
        data = json.loads((folder / "manifest.json").read_bytes())
        data["engines"][0] |= {"files": {}, "compute_capability": "8.9", "build": build | {"settings": settings_}}
        (folder / "manifest.json").write_bytes(canonical_json(data))
        write_hashes(folder, hash_folder(folder))
        ours = outcome(lambda: lines.ask("open", str(folder), verify=True))
        check_same(ours, outcome(lambda: open_bundle(folder)))
        assert len(ours) == (1 if settings_ else 3)
    assert ours[0]["proof"] == PROOF


def parameters(test: Callable[..., None]) -> list[tuple[Any, ...]]:
    """Return what a test of Python's is run with."""
    (mark,) = [mark for mark in test.pytestmark if mark.name == "parametrize"]  # type: ignore[attr-defined]
    found: list[tuple[Any, ...]] = mark.args[1]
    return found


@pytest.mark.parametrize(
    ("membership", "files", "cores"),
    parameters(test_system.test_cores_are_no_more_than_the_quota_of_the_control_groups),
)
def test_cores(lines: Lines, tmp_path: Path, membership: str, files: dict[str, str], cores: int) -> None:
    assert cores >= 1
    test_system.write(tmp_path, "proc/self/cgroup", membership)
    for name, text in files.items():
        test_system.write(tmp_path, f"sys/fs/cgroup/{name}", text)
    assert lines.ask("cores", str(tmp_path)) == system.available_cores(tmp_path)
    for number in os.sched_getaffinity(0):
        test_system.write(tmp_path, f"sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list", "0-99\n")
    assert lines.ask("cores", str(tmp_path)) == 1


def test_this_machine(lines: Lines, tmp_path: Path) -> None:
    assert lines.ask("cores", "/") == system.available_cores()
    assert lines.ask("processor", "/") == system.processor()
    assert lines.ask("memory", None).keys() == process_memory().keys()
    for text, _, _ in [("", "", ""), *parameters(test_system.test_the_processor)]:
        test_system.write(tmp_path, "proc/cpuinfo", text)
        assert lines.ask("processor", str(tmp_path)) == system.processor(tmp_path)


@pytest.mark.parametrize(
    "text", ["", "3", "0", "-1", "many", "nan", "inf", " 1e3 ", "1_0", "1__0", "+5", "+-5", ".5", "5.", "0x10", "it's"]
)
def test_numbers_in_the_environment(native_build: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("SOME_NUMBER", text)
    lines = Lines(native_build)
    for zero in (False, True):
        ours = outcome(lambda zero=zero: lines.ask("number", ["SOME_NUMBER", zero]))
        assert ours == outcome(lambda zero=zero: read_number_variable("SOME_NUMBER", 7, allow_zero=zero))
    lines.close()
