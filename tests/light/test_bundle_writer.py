import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from speccompile.bundle import BundleWriter, check_output, folders, open_bundle
from speccompile.bundle.writer import as_build_error
from speccompile.errors import BuildError, BundleError
from tests.light.bundle_example import LOCK, PROOF, fill, manifest, write_bundle

KILLED_BUILD = """
import os, signal, sys
from pathlib import Path
from speccompile.bundle import BundleWriter
with BundleWriter(Path(sys.argv[1])) as writer:
    (writer.folder / "weights").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def failing_build(output: Path, error: type[BaseException]) -> None:
    with BundleWriter(output) as writing:
        fill(writing.folder)
        raise error


def test_the_same_inputs_give_the_same_bytes(tmp_path):
    first, second = write_bundle(tmp_path / "a" / "demo"), write_bundle(tmp_path / "b" / "other")
    assert everything(first) == everything(second)
    assert str(tmp_path).encode() not in b"".join(everything(first).values())


def test_a_new_bundle_replaces_the_old_one(tmp_path):
    output = write_bundle(tmp_path / "demo", name="old")
    (output / "of-the-old").write_text("x")
    write_bundle(output, name="new")
    assert open_bundle(output).manifest.name == "new"
    assert names(tmp_path) == ["demo"]
    assert "of-the-old" not in names(output)


def test_where_folders_cannot_be_swapped_the_old_one_is_moved_away(tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "_exchange", lambda *_: False)
    output = write_bundle(tmp_path / "demo", name="old")
    write_bundle(output, name="new")
    assert open_bundle(output).manifest.name == "new"
    assert names(tmp_path) == ["demo"]


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_folders_are_swapped_at_one_stroke_where_the_system_can(tmp_path, monkeypatch, platform):
    monkeypatch.setattr(sys, "platform", platform)
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"of-{name}").touch()
    done = folders._exchange(tmp_path / "first", tmp_path / "second")
    assert names(tmp_path / "second") == (["of-first"] if done else ["of-second"])
    assert done is (platform == "linux")


def test_a_link_to_a_bundle_stays_a_link(tmp_path):
    write_bundle(tmp_path / "disk" / "demo", name="old")
    (tmp_path / "demo").symlink_to(tmp_path / "disk" / "demo")
    write_bundle(tmp_path / "demo", name="new")
    assert (tmp_path / "demo").is_symlink()
    assert open_bundle(tmp_path / "disk" / "demo").manifest.name == "new"


def test_an_empty_folder_is_filled(tmp_path):
    (tmp_path / "demo").mkdir()
    assert open_bundle(write_bundle(tmp_path / "demo")).manifest == manifest()


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("old", [True, False])
def test_a_failed_build_leaves_nothing_and_keeps_the_old_bundle(tmp_path, error, old):
    output = tmp_path / "build" / "demo"
    before = everything(write_bundle(output, name="old")) if old else None
    with pytest.raises(error):
        failing_build(output, error)
    assert names(tmp_path) == (["build"] if old else [])
    if old:
        assert names(output.parent) == ["demo"]
        assert everything(output) == before


def test_a_build_that_does_not_finish_leaves_nothing(tmp_path):
    with BundleWriter(tmp_path / "demo") as writing:
        fill(writing.folder)
    assert names(tmp_path) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
@pytest.mark.parametrize("move", [1, 2, 3])
def test_whichever_move_fails_a_good_bundle_stays(tmp_path, monkeypatch, move, error):
    monkeypatch.setattr(folders, "_exchange", lambda *_: False)
    output = write_bundle(tmp_path / "demo", name="old")
    moves, rename = [], Path.rename

    def failing_rename(self, target):
        moves.append(self)
        if len(moves) == move:
            raise error
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing_rename)
    with pytest.raises((KeyboardInterrupt, BuildError)):
        write_bundle(output, name="new")
    monkeypatch.undo()
    assert open_bundle(output).manifest.name == ("new" if move == 3 else "old")
    write_bundle(output, name="next")
    assert names(tmp_path) == ["demo"]


def test_an_interrupt_after_the_move_keeps_the_new_bundle(tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "_exchange", lambda *_: False)
    output = write_bundle(tmp_path / "demo", name="old")
    rename = Path.rename

    def interrupted_rename(self, target):
        rename(self, target)
        if self.suffix == ".part":
            raise KeyboardInterrupt

    monkeypatch.setattr(Path, "rename", interrupted_rename)
    with pytest.raises(KeyboardInterrupt):
        write_bundle(output, name="new")
    assert open_bundle(output).manifest.name == "new"


def test_a_full_disk_is_reported(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    message = r"the bundle could not be written to .*demo: No space left on device"
    with pytest.raises(BuildError, match=message) as caught:
        write_bundle(tmp_path / "demo")
    assert "free space" in caught.value.hint
    assert names(tmp_path) == []


def test_a_bundle_that_no_reader_takes_does_not_replace_a_good_one(tmp_path):
    output = write_bundle(tmp_path / "demo", name="old")
    with pytest.raises(BundleError, match=r"'graphs/verify\.onnx'"), BundleWriter(output) as writing:
        writing.finish(manifest(tokenizer=False), LOCK, PROOF)
    assert open_bundle(output).manifest.name == "old"


def test_a_killed_build_is_cleaned_up_by_the_next_one(tmp_path):
    killed = subprocess.run([sys.executable, "-c", KILLED_BUILD, str(tmp_path / "demo")])
    assert killed.returncode == -signal.SIGKILL
    assert len(names(tmp_path)) == 1
    write_bundle(tmp_path / "demo")
    assert names(tmp_path) == ["demo"]


def test_a_running_build_and_other_outputs_are_left_alone(tmp_path):
    others = [".demo.v2.12-abcdef01.part", ".demo.notes.part", ".demo.v2.12-abcdef01.old"]
    for name in others:
        (tmp_path / name).mkdir()
    with BundleWriter(tmp_path / "demo") as running:
        write_bundle(tmp_path / "demo")
        assert running.folder.is_dir()
    assert names(tmp_path) == sorted([*others, "demo"])


@pytest.mark.parametrize("replaced", [True, False])
def test_an_old_bundle_that_a_killed_build_moved_away_comes_back(tmp_path, replaced):
    output = write_bundle(tmp_path / "demo", name="old")
    output.rename(tmp_path / ".demo.12-abcdef01.old")
    if replaced:
        write_bundle(tmp_path / "other", name="new").rename(output)
    with BundleWriter(output):
        pass
    assert names(tmp_path) == ["demo"]
    assert open_bundle(output).manifest.name == ("new" if replaced else "old")


@pytest.mark.parametrize("enter", [check_output, lambda output: BundleWriter(output).__enter__()])
def test_an_output_that_is_a_file_is_refused(tmp_path, enter):
    (tmp_path / "demo").write_text("x")
    with pytest.raises(BuildError, match=r"the output .*demo is a file, expected a folder") as caught:
        enter(tmp_path / "demo")
    assert caught.value.hint == "give another --output (output=..)"
    assert names(tmp_path) == ["demo"]


@pytest.mark.parametrize("content", ["thesis.txt", "manifest.json", "hashes.json"])
def test_an_output_that_holds_something_else_is_refused(tmp_path, content):
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / content).write_text("{}")
    message = r"the output .*demo is not empty and not a bundle: expected manifest\.json and hashes\.json in it"
    with pytest.raises(BuildError, match=message):
        check_output(tmp_path / "demo")
    assert names(tmp_path / "demo") == [content]


@pytest.mark.skipif(sys.platform != "linux", reason="needs a folder that not even root can write")
def test_an_unwritable_parent_is_refused():
    with pytest.raises(BuildError, match=r"the output /proc/demo cannot be used: ") as caught:
        check_output(Path("/proc/demo"))
    assert "permissions" in caught.value.hint


def test_a_parent_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(BuildError, match=r"cannot be used: Not a directory"):
        check_output(tmp_path / "file" / "demo")


def test_a_good_output_is_checked_without_a_trace(tmp_path):
    assert check_output(tmp_path / "a" / "b" / "demo") == (tmp_path / "a" / "b" / "demo").resolve()
    assert names(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_reported(tmp_path, monkeypatch):
    mkdir = Path.mkdir

    def failing_mkdir(self, *arguments, **options):
        if self.suffix == ".part":
            raise OSError(28, "No space left on device")
        mkdir(self, *arguments, **options)

    monkeypatch.setattr(Path, "mkdir", failing_mkdir)
    with pytest.raises(BuildError, match=r"no folder could be made in .*a: No space left on device"):
        BundleWriter(tmp_path / "a" / "demo").__enter__()
    assert names(tmp_path) == []


def test_the_bundle_has_the_permissions_of_any_new_folder(tmp_path):
    (tmp_path / "plain").mkdir()
    assert write_bundle(tmp_path / "demo").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_an_error_of_a_library_that_has_no_number_is_told():
    with (
        pytest.raises(BuildError, match="could not be written: 320 requested and 0 written"),
        as_build_error("could not be written"),
    ):
        raise OSError("320 requested and 0 written")
