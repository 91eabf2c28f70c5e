"""`speccompile cache`."""

import json
import os
import re
import time
from functools import partial

import pytest

from speccompile.bundle.cache import FolderCache
from speccompile.bundle.result_cache import ResultCache
from speccompile.compiler.engines.cache import Cache
from speccompile.runtime.devices.prepacked import Key, PrepackedWeights
from tests.light.cache_example import key_of, put


@pytest.fixture
def own(tmp_path) -> Cache:
    return Cache(tmp_path / "cache", 1e9)


@pytest.fixture
def cli(own, monkeypatch, command_line):
    """Run `speccompile cache`: exit code, stdout, stderr."""
    monkeypatch.setenv("SPECCOMPILE_CACHE_DIR", str(own.folder))
    monkeypatch.setenv("SPECCOMPILE_CACHE_LIMIT_GB", "0.5")

    return partial(command_line, "cache")


def test_the_list_of_an_empty_cache(cli, own):
    builds, bundles, packed, checked = (own.folder / name for name in ("builds", "bundles", "packed", "checked"))
    limited = {"engines": own.folder, "steps": builds, "bundles": bundles, "packed graphs": packed}
    listed = "".join(f"0 {word}, 0.0 MB of at most 0.5 GB in {folder}\n" for word, folder in limited.items())
    small = {"checked engines": checked, "timed engines": own.folder / "times", "known files": own.folder / "hashes"}
    small["verified bundles"] = own.folder / "verified"
    small |= {"GGUF descriptions": own.folder / "gguf"}
    listed += "".join(f"0 {word}, 0.0 MB in {folder}\n" for word, folder in small.items())
    assert cli("list") == (0, listed, "")
    nothing = {"limit_bytes": 500_000_000, "bytes": 0, "entries": []}
    data = {"folder": str(own.folder)} | nothing
    data |= {name: {"folder": str(own.folder / name)} | nothing for name in ("builds", "bundles", "packed")}
    data |= {folder.name: {"folder": str(folder), "bytes": 0, "entries": []} for folder in small.values()}
    assert json.loads(cli("list", "--json")[1]) == data
    words = limited | small
    removed = "".join(f"removed 0 {word}, 0.0 MB from {folder}\n" for word, folder in words.items())
    assert cli("clear") == (0, removed, "")


def fill(own):
    """Put entries of every kind into the caches; return the file names and keys that their list shows."""
    used = time.time() - 3 * 3600
    os.utime(put(own, 1, 2_000_000), (used, used))
    broken = put(own, 2, 400_000)
    (broken / "entry.json").write_bytes(b"?")
    packed, key = (
        PrepackedWeights(own.folder / "packed", 1e9),
        Key({"graphs/verify.onnx": "ab"}, 1, "1.31.0", {"name": "Fast"}),
    )
    with packed.add_entry(key.digest, {"key": key.to_json(), "packed": {}}) as part:
        (part / "file").write_bytes(bytes(1_000_000))
    steps, digest = FolderCache(own.folder / "builds", 1e9), "c" * 64
    with steps.add_entry(digest, {"key": {"step": "tracing verify"}, "names": ["file"], "result": 1}) as part:
        (part / "file").write_bytes(bytes(3_000_000))
    models = FolderCache(own.folder / "bundles", 1e9)
    with models.add_entry("d" * 64, {"key": {"model": "org/model"}}) as part:
        (part / "file").write_bytes(bytes(500_000))
    return broken, key, steps, digest, models


def test_the_list_and_the_clearing_of_a_cache(cli, own):
    broken, key, steps, digest, models = fill(own)
    code, out, err = cli("list")
    first, second, total, step, step_total, bundle, _, third, packed_total, checked_total, *_ = out.splitlines()
    assert (code, err) == (0, "")
    assert re.match(rf"{broken.name[:12]} +0\.4 MB +used +\d+ seconds? ", first)
    assert first.endswith("ago  unreadable")
    assert second.split() == [
        *(key_of(1).digest[:12], "2.0", "MB", "used", "3", "hours", "ago"),
        *("tensorrt_rtx", "1.7", "8.9", "verify", "target=int4"),
    ]
    assert total == f"2 engines, 2.4 MB of at most 0.5 GB in {own.folder}"
    assert step.startswith(f"{digest[:12]}        3.0 MB  used")
    assert step.endswith(" ago  tracing verify")
    assert bundle.endswith(" ago  org/model")
    assert step_total == f"1 step, 3.0 MB of at most 0.5 GB in {steps.folder}"
    assert third.split()[1:3] == ["1.0", "MB"]
    assert third.endswith("  onnxruntime 1.31.0  Fast  verify.onnx")
    assert packed_total == f"1 packed graph, 1.0 MB of at most 0.5 GB in {own.folder / 'packed'}"
    assert checked_total == f"0 checked engines, 0.0 MB in {own.folder / 'checked'}"
    data = json.loads(cli("list", "--json")[1])
    assert data["bytes"] == sum(entry["size"] for entry in data["entries"])
    assert [entry["key"] for entry in data["entries"]] == [None, json.loads(json.dumps(key_of(1).to_json()))]
    assert {*data["entries"][0]} == {"digest", "size", "used", "key"}
    assert data["packed"]["entries"][0]["key"] == key.to_json()
    assert [entry["key"] for entry in data["builds"]["entries"]] == [{"step": "tracing verify"}]
    assert cli("clear") == (
        0,
        f"removed 2 engines, 2.4 MB from {own.folder}\nremoved 1 step, 3.0 MB from {steps.folder}\n"
        f"removed 1 bundle, 0.5 MB from {models.folder}\n"
        f"removed 1 packed graph, 1.0 MB from {own.folder / 'packed'}\n"
        f"removed 0 checked engines, 0.0 MB from {own.folder / 'checked'}\n"
        f"removed 0 timed engines, 0.0 MB from {own.folder / 'times'}\n"
        f"removed 0 known files, 0.0 MB from {own.folder / 'hashes'}\n"
        f"removed 0 verified bundles, 0.0 MB from {own.folder / 'verified'}\n"
        f"removed 0 GGUF descriptions, 0.0 MB from {own.folder / 'gguf'}\n",
        "",
    )
    assert [path for path in own.folder.rglob("*") if path.is_file()] == []


CHECKED = {"engine": "onnxruntime-cpu", "kernels": ["fast", ""], "onnxruntime": "1.31.0", "processor": {"name": "Fast"}}
EXACT = {"widths": [2, 3], "differing": [], "largest": 0.0}


def test_checked_engines_are_listed_and_cleared(cli, own):
    checked = ResultCache(own.folder / "checked", 1e9)
    other = CHECKED | {"engine": "onnxruntime-cpu-int8"}
    checked.store(CHECKED, EXACT)
    checked.store(other, EXACT | {"differing": [3], "largest": 0.1})
    first, second = sorted(checked.folder.iterdir(), key=lambda path: b"int8" in path.read_bytes())
    for age, path in ((1, first), (3 * 3600, second)):
        os.utime(path, (time.time() - age,) * 2)
    damaged, killed, theirs = (
        checked.folder / name for name in (f"{'a' * 64}.json", f"{'b' * 64}.1.part", "notes.json")
    )
    for path in (damaged, killed, theirs):
        path.write_text("?")
    code, out, err = cli("list")
    newest, middle, oldest, total = out.splitlines()[4:-4]
    assert (code, err) == (0, "")
    assert newest.endswith(" seconds ago  unreadable")
    assert middle.split()[3:7] in (["used", "1", "second", "ago"], ["used", "2", "seconds", "ago"])
    assert middle.split()[-6:] == ["onnxruntime-cpu", "fast,", "onnxruntime", "1.31.0", "Fast", "exact"]
    assert oldest.split()[-8:] == [
        "ago",
        "onnxruntime-cpu-int8",
        "fast,",
        "onnxruntime",
        "1.31.0",
        "Fast",
        "not",
        "exact",
    ]
    assert total == f"3 checked engines, 0.0 MB in {checked.folder}"
    data = json.loads(cli("list", "--json")[1])["checked"]
    assert data["bytes"] == sum(path.stat().st_size for path in (first, second, damaged))
    assert [entry["key"] for entry in data["entries"]] == [None, CHECKED, other]
    assert data["entries"][1]["found"] == EXACT
    assert cli("clear")[1].splitlines()[4] == f"removed 3 checked engines, 0.0 MB from {checked.folder}"
    assert list(checked.folder.iterdir()) == [theirs]


def test_checked_engines_are_read_back_while_there_is_a_cache(own, tmp_path):
    checked = ResultCache(own.folder, 1e9)
    assert checked.read(CHECKED) is None
    checked.store(CHECKED, EXACT)
    (path,) = own.folder.iterdir()
    os.utime(path, (0, 0))
    assert checked.read(CHECKED) == EXACT
    assert checked.entries()[0].last_used > time.time() - 60
    assert checked.read(CHECKED | {"engine": "another"}) is None
    path.write_text('{"key": {}, "found": []}')
    assert checked.read(CHECKED) is None
    (tmp_path / "a file").touch()
    for unusable in (ResultCache(own.folder, 0), ResultCache(tmp_path / "a file" / "checked", 1e9)):
        unusable.store(CHECKED, EXACT)
        assert unusable.read(CHECKED) is None


def test_the_help_shows_the_commands_and_examples(cli):
    for arguments in ((), ("--help",), ("list", "--help"), ("clear", "--help")):
        code, out, err = cli(*arguments)
        assert (code, err) == (0, "")
        assert "Example" in out
        assert "speccompile cache" in out
