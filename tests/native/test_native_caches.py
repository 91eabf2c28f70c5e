"""What is kept on a machine, by either runtime for both: packed weights, and what was found out about engines."""

import hashlib
import json
import logging
import os
import shutil
from pathlib import Path
from random import Random
from typing import Any

import onnxruntime as ort
import pytest

from speccompile.bundle import cache
from speccompile.bundle.hashes import hash_folder, write_hashes
from speccompile.bundle.result_cache import ResultCache
from speccompile.errors import SpeccompileError
from speccompile.runtime.devices import prepacked
from speccompile.runtime.devices.onnx_file import PlaceholderInitializer, external_data, with_carriers
from speccompile.runtime.devices.prepacked import PrepackedWeights, weights_of
from speccompile.runtime.devices.sessions import session_options, shared_session
from tests.light.test_onnx_file import model
from tests.light.test_packed import write_graph
from tests.native.bundle_lines import Lines, outcome

FILE = "graphs/verify.onnx"


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PrepackedWeights:
    """Return a cache for the test, into which small graphs go too when Python packs them."""
    monkeypatch.setenv("SPECCOMPILE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(prepacked, "SMALLEST_GRAPH", 1)
    return PrepackedWeights.named(prepacked.NAME)


def asked(folder: Path) -> list[str]:
    return [str(folder), FILE, ort.__version__]


def demo(tmp_path: Path, seed: int = 0) -> Path:
    folder = tmp_path / f"demo{seed}"
    write_graph(folder, seed=seed)
    return folder


def saved(folder: Path) -> Path:
    """Return what ONNX Runtime writes when it packs the weights of a bundle's graph."""
    output = folder.with_name(f"{folder.name}.saved") / "saved.onnx"
    output.parent.mkdir()
    entries = {
        "optimized_model_external_initializers_file_name": f"{output.name}.weights",
        "optimized_model_external_initializers_min_size_in_bytes": "1024",
        "save_external_prepacked_constant_initializers": "1",
    }
    options = session_options(1, **entries)
    options.optimized_model_filepath = str(output)
    options.log_severity_level = 3
    ort.InferenceSession(folder / FILE, options, providers=["CPUExecutionProvider"])
    return output.parent


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def python_model(folder: Path) -> str | None:
    """Return the digest of the model that Python would open, where the weights are kept."""
    key = prepacked._key(folder, FILE, ort.__version__)
    with PrepackedWeights.named(prepacked.NAME).open_entry(key.digest, "packed graph") as found:
        return hashlib.sha256(prepacked._with_packed(folder / FILE, *found)).hexdigest() if found else None


def test_keys_are_those_of_python(lines: Lines, tmp_path: Path) -> None:
    folder = demo(tmp_path)
    (folder / "graphs" / "unlisted target").write_text("the name does not stand in the graph")
    (folder / "graphs" / "float").write_text("this one does, and no hashes list it")
    key = prepacked._key(folder, FILE, ort.__version__)
    assert lines.ask("packed_key", asked(folder)) == {"key": key.to_json(), "digest": key.digest, "size": key.size}
    assert lines.ask("weights_of", str(folder / FILE)) == [str(path) for path in weights_of(folder / FILE)]
    assert lines.ask("weights_of", str(folder / "missing.onnx")) == []


def test_an_entry_that_python_wrote_is_read(lines: Lines, tmp_path: Path) -> None:
    folder = demo(tmp_path)
    assert lines.ask("open_packed", asked(folder), verify=True) is None
    shared_session(folder, FILE, 1)
    expected = python_model(folder)
    assert expected is not None
    assert [lines.ask("open_packed", asked(folder), verify=verify) for verify in (True, False)] == [expected] * 2
    assert lines.told == []


def test_an_entry_is_written_as_python_writes_it(
    lines: Lines, own: PrepackedWeights, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = demo(tmp_path)
    digest = lines.ask("store", asked(folder), saved=str(saved(folder)))
    model = lines.ask("open_packed", asked(folder), verify=True)
    assert model == python_model(folder)
    written = contents(own.folder)
    assert {name.partition("/")[0] for name in written} == {digest}
    with caplog.at_level(logging.INFO):
        shared_session(folder, FILE, 1)
    assert caplog.text == "", "nothing is packed again"
    shutil.rmtree(own.folder)
    shared_session(folder, FILE, 2)
    assert contents(own.folder) == written


def test_equal_weights_are_one_file(lines: Lines, own: PrepackedWeights, tmp_path: Path) -> None:
    folder, other = demo(tmp_path), tmp_path / "other"
    write_graph(other, more=True)
    shared_session(folder, FILE, 1)
    lines.ask("store", asked(other), saved=str(saved(other)))
    first, second = own.entries()
    assert lines.ask("open_packed", asked(other), verify=True) == python_model(other)
    names = [{path.stat().st_ino for path in (own.folder / each.digest).iterdir()} for each in (first, second)]
    assert len(names[0] & names[1]) == 1


@pytest.mark.parametrize("damage", ["edited", "cut", "gone"])
def test_a_damaged_entry_goes_unless_it_is_in_use(
    lines: Lines, own: PrepackedWeights, tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    folder = demo(tmp_path)
    shared_session(folder, FILE, 1)
    (entry,) = [own.folder / each.digest for each in own.entries()]
    path = max(entry.iterdir(), key=lambda file: file.stat().st_size)
    content = path.read_bytes()
    path.unlink()
    if damage != "gone":
        path.write_bytes(content[:-1] if damage == "cut" else b"?" + content[1:])
    with cache._pinned(entry):
        assert lines.ask("open_packed", asked(folder), verify=True) is None
        assert entry.exists()
        said = lines.told
    assert lines.ask("open_packed", asked(folder), verify=True) is None
    assert lines.told == said
    assert not list(own.folder.iterdir())
    with caplog.at_level(logging.WARNING):
        shared_session(folder, FILE, 1)
        path.write_bytes(content[:-1] if damage == "cut" else b"?" + content[1:]) if damage != "gone" else path.unlink()
        python_model(folder)
    assert said == caplog.messages


def test_the_entry_unused_for_longest_makes_room(
    native_build: Path, own: PrepackedWeights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [demo(tmp_path, seed) for seed in range(4)]
    monkeypatch.setenv("SPECCOMPILE_CACHE_LIMIT_GB", "0.0007")  # two entries
    left = own.folder / f".{'0' * 64}.1-01234567.part"
    foreign = [own.folder / name for name in (".part", "photos", f".{'0' * 64}.1-0123456.part", "0" * 65)]
    for each in (left, *foreign):
        each.mkdir(parents=True)
    lines = Lines(native_build)
    digests = [lines.ask("store", asked(folder), saved=str(saved(folder))) for folder in folders[:2]]
    os.utime(own.folder / digests[0], (2e9, 2e9))  # used last
    digests.append(lines.ask("store", asked(folders[2]), saved=str(saved(folders[2]))))
    assert {each.digest for each in own.entries()} == {digests[0], digests[2]}
    os.utime(own.folder / digests[2], (1, 1))
    with cache._pinned(own.folder / digests[2]):
        digests.append(lines.ask("store", asked(folders[3]), saved=str(saved(folders[3]))))
    assert {each.digest for each in own.entries()} == {digests[2], digests[3]}, "what is in use stays"
    assert not left.exists()
    assert all(each.exists() for each in foreign)
    lines.close()


def test_where_nothing_can_be_kept(native_build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = demo(tmp_path)
    files, key = saved(folder), prepacked._key(folder, FILE, ort.__version__)
    monkeypatch.setenv("SPECCOMPILE_CACHE_LIMIT_GB", "1e-6")
    lines = Lines(native_build)
    with pytest.raises(SpeccompileError) as ours:
        lines.ask("store", asked(folder), saved=str(files))
    with pytest.raises(SpeccompileError) as theirs:
        PrepackedWeights.named(prepacked.NAME).store(key, folder / FILE, lambda graph, output: None)
    assert str(ours.value) == str(theirs.value)
    lines.close()
    monkeypatch.setenv("SPECCOMPILE_CACHE_LIMIT_GB", "1")
    (tmp_path / "cache").write_text("no folder")
    lines = Lines(native_build)
    with pytest.raises(SpeccompileError, match=r"Not a directory|File exists"):
        lines.ask("store", asked(folder), saved=str(files))
    lines.close()


def test_large_graphs_are_mapped(lines: Lines, own: PrepackedWeights, tmp_path: Path) -> None:
    folder = demo(tmp_path)
    files = str(saved(folder))

    def mapped(refuse: str = "") -> Any:
        return lines.ask("open_mapped", asked(folder), verify=True, saved=files, refuse=refuse)

    assert mapped() is False
    assert lines.told == []
    with (folder / "graphs" / "target.weights").open("r+b") as weights:
        weights.truncate(64 << 20)
    write_hashes(folder, hash_folder(folder))
    model = mapped()
    assert lines.told == ["packing the weights of verify.onnx, once on this machine ..."]
    assert mapped() == model == python_model(folder)
    assert lines.told == []
    assert mapped(refuse="it is odd") is False
    assert lines.told == [f"note: the weights of verify.onnx are held, not mapped from {own.folder}: it is odd"]
    (folder / "hashes.json").unlink()
    assert mapped() is False
    assert lines.told == []


def test_serialized_graphs_are_changed_as_python_changes_them(lines: Lines, tmp_path: Path) -> None:
    file, carriers = tmp_path / "model.onnx", {"a/1": "MatMul+1|0;5;0", "größe": "x|0;6;0|4096;7;0"}
    file.write_bytes(model().SerializeToString())
    assert lines.ask("external_data", str(file)) == list(external_data(file.read_bytes()))
    expected = with_carriers(
        file.read_bytes(),
        lambda location: b"in/" + location,
        [PlaceholderInitializer(location.encode(), {"prepacked_0": text}) for location, text in carriers.items()],
    )
    found = lines.ask("with_carriers", str(file), folder="in/", carriers=carriers)
    assert found == hashlib.sha256(expected).hexdigest()


def test_what_is_no_model_is_refused(lines: Lines, tmp_path: Path) -> None:
    dice, file, whole = Random(3), tmp_path / "model.onnx", model().SerializeToString()
    for turn in range(200):
        content = bytearray(whole[: dice.randrange(1, len(whole))] if turn % 2 else whole)
        for _ in range(turn % 4):
            content[dice.randrange(len(content))] = dice.randrange(256)
        file.write_bytes(content)
        found = outcome(lambda: lines.ask("external_data", str(file)))
        assert len(found) == 1 or found[1].startswith("no ONNX model: ")
    file.write_bytes(b"\x0f")
    with pytest.raises(SpeccompileError, match="no ONNX model: a field is written in the way 7, which protobuf"):
        lines.ask("external_data", str(file))


def test_nothing_is_left_of_a_result_that_cannot_be_kept(lines: Lines, tmp_path: Path) -> None:
    key, found = {"engine": "x"}, {"widths": [2, 3]}
    lines.ask("keep", key, found=found)
    (kept,) = (tmp_path / "cache" / "checked").iterdir()
    kept.unlink()
    kept.mkdir()  # nothing can be renamed to it
    lines.ask("keep", key, found=found)
    assert [*kept.parent.iterdir()] == [kept]


def test_what_was_found_out_is_shared(lines: Lines, tmp_path: Path) -> None:
    keys = [{"format": 1, "engine": "größe", "threads": None, "kernels": ["avx2", ""]}, {"engine": "x", "threads": 2}]
    found = {"widths": [2, 3], "differing": [], "largest": 1.25e-7}
    assert lines.ask("known", keys[0]) is None
    ResultCache.named("checked").store(keys[0], found)
    lines.ask("keep", keys[1], found=found)
    written = contents(tmp_path / "cache" / "checked")
    for key in keys:
        assert ResultCache.named("checked").read(key) == lines.ask("known", key) == found
        ResultCache.named("checked").store(key, found)
    assert contents(tmp_path / "cache" / "checked") == written
    for path in (tmp_path / "cache" / "checked").iterdir():
        path.write_text(json.dumps({"key": {}, "found": 3}))
    assert [lines.ask("known", key) for key in keys] == [None, None]
