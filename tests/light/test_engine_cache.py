"""The cache of engines: hits, damage, size, and several processes at once, some of them killed."""

import errno
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from speccompile.bundle import cache
from speccompile.compiler.engines.cache import Cache, default_folder
from speccompile.compiler.engines.key import make_key
from speccompile.contract import Graph
from speccompile.errors import UsageError
from tests.light.cache_example import GRAPH, REPORT, key_of, put, settings

LIMIT = 1e9

WRITER = """
import sys
from pathlib import Path
from speccompile.compiler.engines.cache import Cache
from tests.light.cache_example import REPORT, key_of
folder, work, seed = sys.argv[1:]
import random
generator, work = random.Random(int(seed)), Path(work)
for turn in range(20):
    number = generator.randrange(6)
    cache, engine = Cache(Path(folder), 40_000), work / f"{seed}.engine"
    report = cache.load(key_of(number), engine)
    if report is None:
        engine.write_bytes(bytes([number]) * 10_000)
        cache.store(key_of(number), engine, REPORT | {"number": number})
    else:
        assert report["number"] == number
        assert engine.read_bytes() == bytes([number]) * 10_000
    if turn % 10 == 9:
        cache.clear()
"""

KILLED = """
import os, signal, sys
from pathlib import Path
from tests.light.cache_example import Cache, REPORT, key_of
from speccompile.bundle import cache
def die(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)
setattr(cache if sys.argv[3] == "sync" else cache.shutil, sys.argv[3], die)
engine = Path(sys.argv[2]); engine.write_bytes(b"new" * 1000)
Cache(Path(sys.argv[1]), 1e9).store(key_of(1), engine, REPORT)
"""


@pytest.fixture
def own(tmp_path) -> Cache:
    return Cache(tmp_path / "cache", LIMIT)


def numbers(of: Cache, tmp_path: Path) -> set[int]:
    """Return the engines that are there, each read and compared with what was put in."""
    found = set()
    for number in range(10):
        if (report := of.load(key_of(number), tmp_path / "loaded")) is not None:
            assert report == REPORT | {"number": number}
            assert set((tmp_path / "loaded").read_bytes()) == {number}
            found.add(number)
    return found


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def python(code: str, *arguments: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", code, *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)


def test_an_engine_that_is_there_comes_back_with_its_report(own, tmp_path):
    assert own.load(key_of(1), tmp_path / "loaded") is None
    entry = put(own, 1)
    assert own.load(key_of(1), tmp_path / "loaded") == REPORT | {"number": 1}
    assert (tmp_path / "loaded").read_bytes() == b"\1" * 1000
    assert own.load(key_of(2), tmp_path / "other") is None
    assert names(tmp_path) == ["cache", "engine", "loaded"]
    assert names(own.folder) == [entry.name]
    assert not (tmp_path / "loaded").samefile(entry / "engine"), "a bundle must not share files with the cache"


def test_everything_that_decides_an_engine_is_in_its_key(tmp_path):
    (tmp_path / "verify.onnx").write_bytes(b"..target.weights..")
    (tmp_path / "target.weights").write_bytes(b"12")
    (tmp_path / "drafter.weights").write_bytes(b"34")

    def key(graph: Graph = GRAPH, builder: str = "1.7", gpu: str = "", name: str = "verify", **changes) -> str:
        return make_key(tmp_path / f"{name}.onnx", graph, settings(**changes), builder=builder, gpu=gpu).digest

    first = key()
    assert len(first) == 64
    (tmp_path / "drafter.weights").write_bytes(b"not of this graph")
    (tmp_path / "other.onnx").write_bytes(b"..target.weights..")
    assert key() == key(name="other") == key(precision={"target": "int8"}) == first
    changed = [
        key(Graph("step", GRAPH.inputs, ())),
        key(builder="1.8"),
        key(gpu="Orin"),
        key(backend="tensorrt"),
        key(compute_capability="8.6"),
        key(tokens=5),
    ]
    (tmp_path / "target.weights").write_bytes(b"13")
    changed.append(key())
    (tmp_path / "verify.onnx").write_bytes(b".!target.weights..")
    changed.append(key())
    assert len({first, *changed}) == 9
    assert key_of(1).digest not in {replace(key_of(1), format=2).digest, replace(key_of(1), contract=2).digest}


def test_a_cache_that_may_only_be_read_serves(own, tmp_path, monkeypatch):
    def refuse(path):
        raise OSError(errno.EROFS, "Read-only file system", path)

    put(own, 1)
    monkeypatch.setattr(cache.os, "utime", refuse)
    assert own.load(key_of(1), tmp_path / "loaded") == REPORT | {"number": 1}
    assert (tmp_path / "loaded").read_bytes() == b"\1" * 1000


@pytest.mark.parametrize("file", ["engine", "entry.json", "hashes.json"])
@pytest.mark.parametrize("damage", ["edited", "cut", "gone"])
def test_a_damaged_entry_is_thrown_away_and_said(own, tmp_path, caplog, file, damage):
    path = put(own, 1) / file
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(content[:-1] if damage == "cut" else content[:-2] + b"?" + content[-1:])
    assert own.load(key_of(1), tmp_path / "loaded") is None
    assert not (tmp_path / "loaded").exists()
    assert names(own.folder) == []
    assert "note: a damaged engine is thrown out of the cache: " in caplog.text
    assert file in caplog.text
    put(own, 1)
    assert numbers(own, tmp_path) == {1}


def test_the_engines_unused_for_longest_make_room(own, tmp_path):
    for age, number in enumerate((1, 2, 3)):
        os.utime(put(own, number), (1e9 - age, 1e9 - age))
    room_for_three = Cache(own.folder, 3.5 * own.entries()[0].size)
    assert room_for_three.load(key_of(3), tmp_path / "loaded") is not None
    put(room_for_three, 4)
    assert numbers(own, tmp_path) == {1, 3, 4}
    os.utime(own.folder / key_of(4).digest, (1, 1))
    put(room_for_three, 5)
    put(room_for_three, 6)
    assert {5, 6} < numbers(own, tmp_path) <= {1, 3, 5, 6}
    assert sum(entry.size for entry in own.entries()) <= room_for_three.limit


def test_what_is_larger_than_the_limit_is_not_kept(own, tmp_path):
    put(own, 1)
    small = Cache(own.folder, 3000)
    put(small, 2, 4000)
    assert numbers(small, tmp_path) == {1}


def test_a_limit_of_0_switches_the_cache_off(own, tmp_path):
    off = Cache(own.folder, 0)
    put(off, 1)
    assert not own.folder.exists()
    put(own, 1)
    assert off.load(key_of(1), tmp_path / "loaded") is None
    assert numbers(own, tmp_path) == {1}


def test_what_another_process_reads_stays(own, tmp_path):
    entry = put(own, 1)
    with cache._pinned(entry) as is_there:
        assert is_there
        assert own.clear() == []
        put(Cache(own.folder, 2000), 2)
        assert (entry / "engine").read_bytes() == b"\1" * 1000
    assert entry.name in {each.digest for each in own.clear()}
    assert names(own.folder) == []


def test_an_entry_that_goes_while_it_is_opened_is_none(own, monkeypatch):
    entry = put(own, 1)
    lock_folder = cache.lock_folder

    def lock_late(folder, **options):
        lock = lock_folder(folder, **options)
        if options.get("shared"):
            entry.rename(entry.with_name("elsewhere"))
            entry.mkdir()
        return lock

    monkeypatch.setattr(cache, "lock_folder", lock_late)
    with cache._pinned(entry) as is_there:
        assert not is_there


def test_a_folder_without_locks_cannot_be_a_cache(own, tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "lock_folder", lambda folder, **options: None)
    with pytest.raises(OSError, match="the filesystem has no locks"):
        put(own, 1)


def test_processes_at_once_leave_a_sound_cache(own, tmp_path):
    """Run four writers with room for three entries, which load, store, evict and clear what the others use."""
    writers = [python(WRITER, own.folder, tmp_path, seed) for seed in range(4)]
    assert [(each.wait(60), each.stderr.read()) for each in writers] == [(0, "")] * 4
    found = numbers(own, tmp_path)
    assert {entry.digest for entry in own.entries()} == {key_of(number).digest for number in found}
    assert sum(entry.size for entry in own.entries()) <= 40_000
    assert not [name for name in names(own.folder) if name.endswith(".part")]


@pytest.mark.parametrize("where", ["copyfile", "sync", "rmtree"])
def test_a_killed_process_leaves_nothing_that_stays(own, tmp_path, where):
    put(own, 1) if where == "rmtree" else put(own, 2)
    code = KILLED.replace(").store", ").clear() #") if where == "rmtree" else KILLED
    with python(code, own.folder, tmp_path / "new", where) as killed:
        assert killed.wait(60) == -signal.SIGKILL
    left = [name for name in names(own.folder) if name.endswith(".part")]
    assert len(left) == 1
    assert numbers(own, tmp_path) == (set() if where == "rmtree" else {2})
    put(own, 3)
    assert not (own.folder / left[0]).exists()
    assert numbers(own, tmp_path) == ({3} if where == "rmtree" else {2, 3})


def test_clearing_removes_what_killed_processes_left(own, tmp_path):
    own.folder.mkdir()
    with python(KILLED, own.folder, tmp_path / "new", "copyfile") as killed:
        assert killed.wait(60) == -signal.SIGKILL
    assert len(names(own.folder)) == 1
    assert own.clear() == []
    assert names(own.folder) == []


def test_random_kills_do_no_harm(own, tmp_path):
    generator = random.Random(7)
    for seed in range(4):
        with python(WRITER, own.folder, tmp_path, seed) as writer:
            time.sleep(0.15 + generator.random() * 0.2)
            writer.kill()
        numbers(own, tmp_path)
    with python(WRITER, own.folder, tmp_path, 99) as writer:
        assert (writer.wait(60), writer.stderr.read()) == (0, "")
    assert not [name for name in names(own.folder) if name.endswith(".part")]


def test_where_the_cache_lies(monkeypatch, tmp_path):
    for variable in ("SPECCOMPILE_CACHE_DIR", "XDG_CACHE_HOME", "SPECCOMPILE_CACHE_LIMIT_GB"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_folder() == tmp_path / ".cache" / "speccompile" / "engines"
    assert Cache().limit == 20e9
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert default_folder() == tmp_path / ".cache" / "speccompile" / "engines"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_folder() == tmp_path / "xdg" / "speccompile" / "engines"
    monkeypatch.setenv("SPECCOMPILE_CACHE_DIR", str(tmp_path / "own"))
    assert Cache().folder == tmp_path / "own"


def test_a_user_without_a_home_has_no_cache_and_one_line_says_so(monkeypatch, tmp_path, caplog):
    """Run as in a container: without HOME, under a number that no user has."""
    for variable in ("SPECCOMPILE_CACHE_DIR", "XDG_CACHE_HOME", "SPECCOMPILE_CACHE_LIMIT_GB", "HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 54321)
    cache._tell_without_home.cache_clear()
    assert (Cache().limit, cache.FolderCache.named("builds").limit) == (0, 0)
    assert Cache().entries() == []
    with pytest.raises(OSError, match="Not a directory"):
        Cache().folder.mkdir(parents=True)
    assert caplog.text.count("this user has no home folder: nothing is cached") == 1
    assert "SPECCOMPILE_CACHE_DIR" in caplog.text
    monkeypatch.setenv("SPECCOMPILE_CACHE_DIR", str(tmp_path))
    assert Cache().limit == 20e9


@pytest.mark.parametrize("text", ["-1", "many", "nan", "inf"])
def test_a_limit_that_is_no_number(monkeypatch, text):
    monkeypatch.setenv("SPECCOMPILE_CACHE_LIMIT_GB", text)
    with pytest.raises(UsageError, match=f"LIMIT_GB: received '{text}', expected a number of at least 0"):
        Cache()


def test_what_else_lies_in_the_folder_is_left_alone(own, tmp_path):
    put(own, 1)
    others = [own.folder / name / "file" for name in ("photos", "a.part", ".b.part", "0" * 63)]
    for other in others:
        other.parent.mkdir()
        other.write_bytes(b"x" * 3000)
        os.utime(other.parent, (1, 1))
    put(Cache(own.folder, 2000), 2)
    assert {entry.digest for entry in own.clear()} <= {key_of(1).digest, key_of(2).digest}
    assert all(other.read_bytes() == b"x" * 3000 for other in others)
    assert len(names(own.folder)) == len(others)
