"""Hashes of files that are kept, and files that must not change while something is made from them."""

import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from blake3 import blake3

from speccompile.bundle import file_hashes
from speccompile.bundle.file_hashes import NAME, FileHashCache, cached_file_hash
from speccompile.compiler.checkpoints.change_guard import ChangeGuard
from speccompile.errors import BundleError, CheckpointError, UsageError


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCOMPILE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "hashes"


@pytest.fixture
def reads(monkeypatch):
    """Return the files that were read to be hashed."""
    read, original = [], file_hashes._hash
    monkeypatch.setattr(file_hashes, "_hash", lambda path, advance: read.append(path.name) or original(path, advance))
    return read


def write(path, content, age=60.0):
    path.write_bytes(content)
    os.utime(path, (time.time() - age, time.time() - age))
    return path


def test_a_hash_is_computed_once(tmp_path, cache, reads):
    data = bytes(range(256)) * 300_000  # several blocks
    path, done = write(tmp_path / "shard", data), []
    for _ in range(2):
        assert cached_file_hash(path, done.append) == blake3(data).hexdigest()
    assert reads == ["shard"]
    assert sum(done) == 2 * len(data)
    assert [json.loads(file.read_bytes())["key"] for file in cache.iterdir()] == [{"path": str(path)}]


def test_a_link_is_the_file_that_it_leads_to(tmp_path, reads):
    """Hash the file behind a link, as in the folders of the Hub's cache."""
    write(tmp_path / "blob", b"weights")
    (tmp_path / "link").symlink_to("blob")
    assert cached_file_hash(tmp_path / "link") == cached_file_hash(tmp_path / "blob")
    assert reads == ["blob"]


def test_another_content_of_the_same_size_is_seen(tmp_path, reads):
    path = write(tmp_path / "shard", b"one")
    before = cached_file_hash(path)
    write(path, b"two", age=50)
    assert cached_file_hash(path) == blake3(b"two").hexdigest() != before
    assert len(reads) == 2


def test_another_file_with_the_same_size_and_time_is_seen(tmp_path, reads):
    path, other = write(tmp_path / "shard", b"one"), write(tmp_path / "other", b"two")
    cached_file_hash(path)
    stat = path.stat()
    os.utime(other, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    other.replace(path)
    assert cached_file_hash(path) == blake3(b"two").hexdigest()


def test_the_hash_of_a_file_that_may_change_within_its_time_is_not_kept(tmp_path, cache, reads):
    """Hash a new file again: a change that keeps size, time and inode would not be seen."""
    path = write(tmp_path / "shard", b"one", age=1)
    cached_file_hash(path)
    stat = path.stat()
    path.write_bytes(b"two")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert cached_file_hash(path) == blake3(b"two").hexdigest()
    assert not cache.exists()


def test_the_hash_of_a_file_that_changes_while_it_is_read_is_not_kept(tmp_path, cache, monkeypatch):
    path, original = write(tmp_path / "shard", b"one"), file_hashes._hash
    monkeypatch.setattr(file_hashes, "_hash", lambda *given: (original(*given), write(path, b"twos", age=30))[0])
    cached_file_hash(path)
    assert not cache.exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: b"",
        lambda text: text[: len(text) // 2],
        lambda text: text.replace(b'"blake3": "', b'"blake3": "?'),
        lambda text: b'{"key": {}, "found": {}}',
        lambda text: b"\xff",
    ],
)
def test_a_damaged_record_is_made_again(tmp_path, cache, reads, damage):
    path = write(tmp_path / "shard", b"one")
    cached_file_hash(path)
    (record,) = cache.iterdir()
    whole = record.read_bytes()
    record.write_bytes(damage(whole))
    assert record.read_bytes() != whole
    assert cached_file_hash(path) == blake3(b"one").hexdigest()
    assert record.read_bytes() == whole
    assert len(reads) == 2


def test_no_cache_keeps_no_hashes(tmp_path, cache, reads, monkeypatch):
    path = write(tmp_path / "shard", b"one")
    cached_file_hash(path)
    monkeypatch.setenv("SPECCOMPILE_CACHE_LIMIT_GB", "0")
    assert cached_file_hash(path) == blake3(b"one").hexdigest()
    assert len(reads) == 2  # what is kept is not read either
    monkeypatch.setenv("SPECCOMPILE_CACHE_LIMIT_GB", "much")
    with pytest.raises(UsageError, match=r"\$SPECCOMPILE_CACHE_LIMIT_GB: received 'much', expected a number"):
        cached_file_hash(path)


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path, cache, reads):
    cache.parent.write_bytes(b"a file where the folder should be")
    path = write(tmp_path / "shard", b"one")
    assert [cached_file_hash(path) for _ in range(2)] == [blake3(b"one").hexdigest()] * 2
    assert len(reads) == 2


def test_many_at_once_do_not_harm(tmp_path, cache):
    paths = [write(tmp_path / f"shard{number}", bytes([number])) for number in range(4)]
    ready = threading.Barrier(16)

    def hashed(number):
        ready.wait()
        return [cached_file_hash(path) for path in paths]

    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(hashed, range(16)))
    assert found == [[blake3(bytes([number])).hexdigest() for number in range(4)]] * 16
    assert sorted(file.suffix for file in cache.iterdir()) == [".json"] * 4


def test_hashes_are_listed_and_cleared(tmp_path, cache):
    path = write(tmp_path / "shard", b"one")
    cached_file_hash(path)
    (record,) = FileHashCache.named(NAME).clear()
    assert (record.key, record.found["file"]["size"]) == ({"path": str(path)}, 3)
    assert not list(cache.iterdir())


def test_a_file_that_cannot_be_read_is_told(tmp_path):
    with pytest.raises(BundleError, match="shard: cannot be read: No such file or directory") as caught:
        cached_file_hash(tmp_path / "shard")
    assert caught.value.hint == "check that the file is there and may be read"


@pytest.fixture
def checkpoint(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        write(folder / name, b"one")
    return folder


def unchanged(folder):
    return ChangeGuard(folder, [file.relative_to(folder) for file in sorted(folder.iterdir())])


def test_files_that_stay_are_unchanged(checkpoint):
    files = unchanged(checkpoint)
    (checkpoint / "config.json").read_bytes()
    (checkpoint / "more").write_bytes(b"")
    files.check()


def replace(path):
    stat = path.stat()
    write(path.with_suffix(".part"), b"two").replace(path)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


@pytest.mark.parametrize(
    ("change", "received"),
    [
        (lambda path: path.write_bytes(b"longer"), r"6 bytes of [\d-]+ [\d:.]+ \(inode \d+\)"),
        (lambda path: os.utime(path, ns=(0, 0)), r"3 bytes of 1970-01-01 00:00:00\.000000000 \(inode \d+\)"),
        (replace, r"3 bytes of [\d-]+ [\d:.]+ \(inode \d+\)"),
        (lambda path: path.unlink(), "no file"),
    ],
)
def test_a_file_that_changes_is_told(checkpoint, change, received):
    files = unchanged(checkpoint)
    change(checkpoint / "model.safetensors")
    told = rf"model\.safetensors: the checkpoint changed while it was built: received {received}, expected 3 bytes of "
    with pytest.raises(CheckpointError, match=told) as caught:
        files.check()
    assert "leave the checkpoint alone" in caught.value.hint


def test_a_link_that_leads_elsewhere_is_a_change(checkpoint, tmp_path):
    link = checkpoint / "link"
    for name in ("a", "b"):
        write(tmp_path / name, b"one")
    link.symlink_to(tmp_path / "a")
    files = unchanged(checkpoint)
    link.unlink()
    link.symlink_to(tmp_path / "b")
    with pytest.raises(CheckpointError, match="link: the checkpoint changed"):
        files.check()


def test_a_change_explains_what_a_reader_says_of_it(checkpoint):
    def read():
        (checkpoint / "config.json").unlink()
        raise ValueError("nobody knows this architecture")

    told = "the checkpoint changed while it was built: received no file"
    with pytest.raises(CheckpointError, match=told) as caught, unchanged(checkpoint):
        read()
    assert isinstance(caught.value.__context__, ValueError)


@pytest.mark.parametrize("error", [ValueError("another reason"), KeyboardInterrupt()])
def test_other_errors_of_a_reader_stay_what_they_are(checkpoint, error):
    with pytest.raises(type(error)) as caught, unchanged(checkpoint):
        raise error
    assert caught.value is error
