"""Which files of a bundle are not compared again: one record, written and read by either runtime."""

import shutil
import time
from pathlib import Path

import pytest

from speccompile.bundle import open_bundle, verified_files
from speccompile.bundle.hashes import FileRecord, Hashes, hash_folder, read_hashes, write_hashes
from speccompile.bundle.verified_files import VerifiedFiles
from speccompile.errors import BundleError
from tests.light.bundle_example import several_rows, write_bundle
from tests.light.test_verified_files import GRAPH, edit
from tests.native.bundle_lines import Lines, outcome


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a bundle with a file that differs from its hash, in an environment with an empty cache."""
    monkeypatch.setenv("SPECCOMPILE_CACHE_DIR", str(tmp_path / "cache"))
    folder = write_bundle(tmp_path / "bundle", **several_rows())
    edit(folder / GRAPH)
    return folder


@pytest.fixture
def lines(bundle: Path, native_build: Path):
    started = Lines(native_build)
    yield started
    started.close()


def record(folder: Path) -> VerifiedFiles:
    """Record that all files were compared, and return their states."""
    found = VerifiedFiles.of(folder, read_hashes(folder))
    verified_files.ResultCache.named(verified_files.NAME).store(found.key, {"files": found.states})
    return VerifiedFiles.of(folder, read_hashes(folder))


def ask(lines: Lines, folder: Path, *, skip_verified: bool) -> tuple:
    return outcome(lambda: lines.ask("open", str(folder), verify=True, skip_verified=skip_verified)["digest"])


def test_files_in_python_s_record_are_not_compared(lines, bundle):
    message = f"{bundle / GRAPH}: the file was edited: BLAKE3"
    assert ask(lines, bundle, skip_verified=True)[1].startswith(message)
    assert record(bundle).unchanged == set(read_hashes(bundle).files)
    assert ask(lines, bundle, skip_verified=True) == (read_hashes(bundle).digest,)
    assert open_bundle(bundle, skip_verified=True)
    assert ask(lines, bundle, skip_verified=False)[1].startswith(message)
    edit(bundle / GRAPH)
    assert ask(lines, bundle, skip_verified=True)[1].startswith(message)


def test_python_skips_what_is_in_the_record_of_the_native_runtime(lines, bundle):
    write_hashes(bundle, hash_folder(bundle))
    assert ask(lines, bundle, skip_verified=True) == (read_hashes(bundle).digest,)
    assert not VerifiedFiles.of(bundle, read_hashes(bundle)).unchanged, "its files are too young"
    time.sleep(verified_files.MIN_STAMP_AGE + 0.1)
    assert ask(lines, bundle, skip_verified=True) == (read_hashes(bundle).digest,)
    found = VerifiedFiles.of(bundle, read_hashes(bundle))
    assert found.unchanged == set(found.states)


def test_a_copy_and_another_list_of_hashes_are_compared(lines, bundle, tmp_path):
    record(bundle)
    shutil.copytree(bundle, tmp_path / "copy")
    assert "was edited" in ask(lines, tmp_path / "copy", skip_verified=True)[1]
    files = dict(read_hashes(bundle).files)
    files[GRAPH] = FileRecord("0" * 64, files[GRAPH].size)
    write_hashes(bundle, Hashes(hash_folder(bundle).digest, files))
    with pytest.raises(BundleError, match="the file was edited: digest"):
        open_bundle(bundle, skip_verified=True)
    assert "the file was edited: digest" in ask(lines, bundle, skip_verified=True)[1]
