"""Opening a bundle again: what was compared with its hash and is unchanged since is not read a second time."""

import os
import shutil
import time
from pathlib import Path

import pytest

from speccompile.bundle import hashes, open_bundle, verified_files
from speccompile.bundle.hashes import hash_folder, write_hashes
from speccompile.bundle.result_cache import ResultCache
from speccompile.errors import BundleError
from tests.light.bundle_example import WEIGHTS, several_rows, write_bundle

GRAPH = "graphs/weights.bin"


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("SPECCOMPILE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / verified_files.NAME


@pytest.fixture
def bundle(tmp_path: Path, cache: Path, monkeypatch) -> Path:
    """Return a bundle that is old enough to be recorded: the clock that states are compared with runs ahead."""
    clock = time.time
    monkeypatch.setattr(verified_files.time, "time", lambda: clock() + verified_files.MIN_STAMP_AGE + 1)
    return write_bundle(tmp_path / "bundle", **several_rows())


@pytest.fixture
def read(monkeypatch) -> list[str]:
    """Return the names of the files that are hashed from here on."""
    found, hash_file = [], hashes.hash_file
    monkeypatch.setattr(hashes, "hash_file", lambda path, *more: found.append(path.name) or hash_file(path, *more))
    return found


def test_unchanged_files_are_read_once(bundle, read):
    open_bundle(bundle, skip_verified=True)
    assert sorted(read) == sorted(Path(name).name for name in hash_folder(bundle).files)
    read.clear()
    open_bundle(bundle, skip_verified=True)
    assert read == []
    open_bundle(bundle)
    assert len(read) == len(hash_folder(bundle).files)


def test_a_folder_whose_name_is_not_unicode_is_recorded_as_well(bundle, read):
    """Use the bytes of a name in Latin-1, which is also how names in UTF-8 arrive where the locale is C."""
    folder = bundle.rename(bundle.with_name(os.fsdecode(b"gr\xf6\xdfe")))
    open_bundle(folder, skip_verified=True)
    read.clear()
    open_bundle(folder, skip_verified=True)
    assert read == []


def test_a_fresh_file_is_read_again(bundle, read, monkeypatch, cache):
    monkeypatch.setattr(verified_files.time, "time", lambda: (bundle / GRAPH).stat().st_ctime)
    for _ in range(2):
        read.clear()
        open_bundle(bundle, skip_verified=True)
        assert read
    assert not cache.exists()


def edit(path: Path) -> None:
    path.write_bytes(bytes(len(WEIGHTS)))


def edit_and_set_the_time_back(path: Path) -> None:
    before = path.stat()
    edit(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns


def replace(path: Path) -> None:
    before = path.stat()
    other = path.with_name("other")
    edit(other)
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(path)


@pytest.mark.parametrize("change", [edit, edit_and_set_the_time_back, replace])
def test_edited_files_are_refused(bundle, change):
    open_bundle(bundle, skip_verified=True)
    time.sleep(0.02)  # a step of the filesystem's clock
    change(bundle / GRAPH)
    with pytest.raises(BundleError, match=f"{GRAPH}: the file was edited: BLAKE3"):
        open_bundle(bundle, skip_verified=True)


def test_a_copy_is_compared(bundle, tmp_path, read):
    open_bundle(bundle, skip_verified=True)
    read.clear()
    shutil.copytree(bundle, tmp_path / "copy")
    open_bundle(tmp_path / "copy", skip_verified=True)
    assert len(read) == len(hash_folder(bundle).files)


def test_another_list_of_hashes_is_compared(bundle):
    open_bundle(bundle, skip_verified=True)
    found = hash_folder(bundle)
    record = hashes.FileRecord("0" * 64, found.files[GRAPH].size)
    files = found.files | {GRAPH: record}
    write_hashes(bundle, hashes.Hashes(hashes._digest(files), files))
    with pytest.raises(BundleError, match="the file was edited: BLAKE3"):
        open_bundle(bundle, skip_verified=True)


@pytest.mark.parametrize("found", [{}, {"files": []}, {"files": {GRAPH: [0]}}, {"files": {GRAPH: {"0": None}}}])
def test_a_record_that_is_none_is_ignored(bundle, read, monkeypatch, found):
    monkeypatch.setattr(ResultCache, "read", lambda self, key: found)
    open_bundle(bundle, skip_verified=True)
    assert len(read) == len(hash_folder(bundle).files)


def test_a_cache_of_size_0_remembers_nothing(bundle, read, monkeypatch, cache):
    monkeypatch.setenv("SPECCOMPILE_CACHE_LIMIT_GB", "0")
    for _ in range(2):
        read.clear()
        open_bundle(bundle, skip_verified=True)
        assert read
    assert not cache.exists()
