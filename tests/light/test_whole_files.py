"""A file is there whole or as it was, whoever reads it meanwhile and whatever ends its writing."""

import errno
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from speccompile.bundle.folders import lock_folder, write_atomically
from tests.full_disk import largest_file

OLD, NEW = b"old", b"new and longer"


@pytest.mark.parametrize("old", [None, OLD], ids=["new", "replaced"])
def test_a_file_is_written_at_one_stroke(tmp_path, monkeypatch, old):
    path, found, replace = tmp_path / "file.json", [], Path.replace
    if old is not None:
        path.write_bytes(old)

    def watched(part: Path, destination: Path) -> Path:
        found.append((part.name, part.read_bytes(), path.read_bytes() if path.exists() else None))
        return replace(part, destination)

    monkeypatch.setattr(Path, "replace", watched)
    write_atomically(path, NEW)
    assert found == [(f".file.json.{os.getpid()}", NEW, old)]
    assert [each.name for each in tmp_path.iterdir()] == ["file.json"]
    assert path.read_bytes() == NEW


def half_written(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content[: len(content) // 2])


@pytest.fixture(params=["without a name", "named", "no /proc"])
def way(request, monkeypatch) -> str:
    """Choose how the new file is written: on a system that has files without names, and on others."""
    if request.param == "named":
        monkeypatch.setattr("speccompile.bundle.folders.sys.platform", "other")
    if request.param == "no /proc":
        monkeypatch.setattr("os.link", lambda *_given, **_named: Path("/absent").stat())
    return request.param


@pytest.mark.parametrize(("call", "done"), [("write_bytes", half_written), ("replace", lambda *_: None)])
@pytest.mark.parametrize("ending", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()], ids=repr)
def test_what_ends_the_writing_leaves_the_file_as_it_was(tmp_path, monkeypatch, call, done, ending, way):
    if way == "without a name" and call == "write_bytes":
        pytest.skip("it ends with the process")
    path = tmp_path / "file"
    path.write_bytes(OLD)

    def ended(part: Path, given: object) -> None:
        done(part, given)
        raise ending

    monkeypatch.setattr(Path, call, ended)
    with pytest.raises(type(ending)) as caught:
        write_atomically(path, NEW)
    assert caught.value is ending
    assert path.read_bytes() == OLD
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_told_with_the_file(tmp_path):
    with largest_file(16), pytest.raises(OSError, match="File too large") as caught:
        write_atomically(tmp_path / "file", bytes(17))
    assert caught.value.filename == str(tmp_path / "file")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("place", ["absent/file", "file/file"])
def test_a_folder_that_is_not_there_is_what_is_told(tmp_path, place):
    (tmp_path / "file").write_bytes(OLD)
    with pytest.raises(OSError, match=r"No such file or directory|Not a directory") as caught:
        write_atomically(tmp_path / place, NEW)
    assert Path(caught.value.filename).parent == (tmp_path / place).parent
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_threads_and_containers_with_one_process_id_do_not_write_each_others_files(tmp_path, way):
    """Let one of several writers win, whole; files that another process with the same number has left stay."""
    path = tmp_path / "file"
    left = tmp_path / f".file.{os.getpid()}"
    left.write_bytes(OLD)
    texts = [bytes([number]) * 200_000 for number in range(4)]

    def write(text: bytes) -> None:
        for _ in range(40):
            write_atomically(path, text)
            assert path.read_bytes() in texts

    with ThreadPoolExecutor() as pool:
        assert list(pool.map(write, texts)) == [None] * 4
    assert left.read_bytes() == OLD
    assert sorted(tmp_path.iterdir()) == sorted([path, left])


@pytest.mark.skipif(sys.platform != "linux", reason="of systems that have files without names")
def test_a_process_that_is_killed_leaves_no_part_of_a_file(tmp_path):
    write = "from pathlib import Path; from speccompile.bundle.folders import write_atomically\n"
    write += (
        f"print('ready', flush=True)\nwhile True: write_atomically(Path({str(tmp_path / 'file')!r}), bytes(1 << 25))\n"
    )
    with subprocess.Popen([sys.executable, "-c", write], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.02)
        process.kill()
    # the second is there if it was killed between the two calls that name and move it
    assert {each.name for each in tmp_path.iterdir()} <= {"file", f".file.{process.pid}"}
    assert {each.stat().st_size for each in tmp_path.iterdir()} <= {1 << 25}


def test_waiting_for_a_folder_is_said(tmp_path, caplog):
    caplog.set_level("INFO", logger="speccompile")
    free = lock_folder(tmp_path, wait=True)
    assert (free is not None, caplog.messages) == (True, [])
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(lock_folder, tmp_path, wait=True)
        with pytest.raises(TimeoutError):
            waiting.result(0.2)
        os.close(free)
        os.close(waiting.result(5))
    assert caplog.messages == [f"waiting for another process that writes to {tmp_path} ..."]
