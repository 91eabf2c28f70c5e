"""A file is there whole or as it was, whoever reads it meanwhile and whatever ends its writing."""

import errno
import os
from pathlib import Path

import pytest

from speccompile.bundle.folders import write_atomically

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


@pytest.mark.parametrize(("call", "done"), [("write_bytes", half_written), ("replace", lambda *_: None)])
@pytest.mark.parametrize("ending", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()], ids=repr)
def test_what_ends_the_writing_leaves_the_file_as_it_was(tmp_path, monkeypatch, call, done, ending):
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


@pytest.mark.parametrize("place", ["absent/file", "file/file"])
def test_a_folder_that_is_not_there_is_what_is_told(tmp_path, place):
    (tmp_path / "file").write_bytes(OLD)
    with pytest.raises(OSError, match=r"No such file or directory|Not a directory") as caught:
        write_atomically(tmp_path / place, NEW)
    assert Path(caught.value.filename).parent == (tmp_path / place).parent
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
