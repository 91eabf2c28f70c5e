"""`speccompile cache`."""

import json
import os
import time

import pytest

from speccompile.cli import edge
from speccompile.cli.main import group
from speccompile.engines.cache import Cache
from speccompile.runtime.packed import Key, PackedWeights
from tests.light.cache_example import key_of, put


@pytest.fixture
def own(tmp_path) -> Cache:
    return Cache(tmp_path / "cache", 1e9)


@pytest.fixture
def cli(own, monkeypatch, capsys):
    """`speccompile cache`: exit code, stdout, stderr."""
    monkeypatch.setenv("SPECCOMPILE_CACHE_DIR", str(own.folder))
    monkeypatch.setenv("SPECCOMPILE_CACHE_LIMIT_GB", "0.5")

    def run(*arguments: str) -> tuple[int, str, str]:
        code = edge.run(group, ["cache", *arguments])
        return (code, *capsys.readouterr())

    return run


def test_the_list_of_an_empty_cache(cli, own):
    packed = own.folder / "packed"
    engines_line, packed_line = (f"0 {word}, 0.0 MB of at most 0.5 GB in " for word in ("engines", "packed graphs"))
    listed = f"{engines_line}{own.folder}\n{packed_line}{packed}\n"
    assert cli("list") == (0, listed, "")
    nothing = {"limit_bytes": 500_000_000, "bytes": 0, "entries": []}
    data = {"folder": str(own.folder)} | nothing | {"packed": {"folder": str(packed)} | nothing}
    assert json.loads(cli("list", "--json")[1]) == data
    removed = f"removed 0 engines, 0.0 MB from {own.folder}\nremoved 0 packed graphs, 0.0 MB from {packed}\n"
    assert cli("clear") == (0, removed, "")


def test_the_list_and_the_clearing_of_a_cache(cli, own):
    used = time.time() - 3 * 3600
    os.utime(put(own, 1, 2_000_000), (used, used))
    broken = put(own, 2, 400_000)
    (broken / "entry.json").write_bytes(b"?")
    packed, key = (
        PackedWeights(own.folder / "packed", 1e9),
        Key({"graphs/verify.onnx": "ab"}, 1, "1.31.0", {"name": "Fast"}),
    )
    with packed.adding(key.digest, {"key": key.to_json(), "packed": {}}) as part:
        (part / "file").write_bytes(bytes(1_000_000))
    code, out, err = cli("list")
    first, second, total, third, packed_total = out.splitlines()
    assert (code, err) == (0, "")
    assert [*first.split()][:6] == [broken.name[:12], "0.4", "MB", "used", "0", "seconds"]
    assert first.endswith("ago  unreadable")
    assert second.split() == [
        *(key_of(1).digest[:12], "2.0", "MB", "used", "3", "hours", "ago"),
        *("tensorrt_rtx", "1.7", "8.9", "verify", "target=int4"),
    ]
    assert total == f"2 engines, 2.4 MB of at most 0.5 GB in {own.folder}"
    assert third.split()[1:3] == ["1.0", "MB"]
    assert third.endswith("  onnxruntime 1.31.0  Fast  verify.onnx")
    assert packed_total == f"1 packed graph, 1.0 MB of at most 0.5 GB in {own.folder / 'packed'}"
    data = json.loads(cli("list", "--json")[1])
    assert data["bytes"] == sum(entry["size"] for entry in data["entries"])
    assert [entry["key"] for entry in data["entries"]] == [None, json.loads(json.dumps(key_of(1).to_json()))]
    assert data["packed"]["entries"][0]["key"] == key.to_json()
    assert cli("clear") == (
        0,
        f"removed 2 engines, 2.4 MB from {own.folder}\nremoved 1 packed graph, 1.0 MB from {own.folder / 'packed'}\n",
        "",
    )
    assert list(own.folder.glob("[!p]*")) == list((own.folder / "packed").iterdir()) == []


def test_the_help_shows_the_commands_and_examples(cli):
    for arguments in ((), ("--help",), ("list", "--help"), ("clear", "--help")):
        code, out, err = cli(*arguments)
        assert (code, err) == (0, "")
        assert "Example" in out
        assert "speccompile cache" in out
