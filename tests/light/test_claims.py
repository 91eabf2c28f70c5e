"""Folders of resumable work: each belongs to one process and one key."""

import os
import subprocess
import sys

import pytest

from speccompile.bundle.work_folders import differing_keys, locked_for
from speccompile.errors import UsageError

WORK = {"work": "a thing", "option": "--out", "command": "speccompile thing"}


def test_the_same_key_goes_on_and_another_is_refused_by_name(tmp_path):
    folder = tmp_path / "deep" / "work"
    key = {"a": 1, "b": {"c": [1, 2], "d": 0.5}}
    for _ in range(2):
        with locked_for(folder, "key.json", key, **WORK):
            assert (folder / "key.json").is_file()
    with (
        pytest.raises(UsageError, match=r"--out: received '.*work', which holds a thing with other b\.c, e, expected"),
        locked_for(folder, "key.json", {"a": 1, "b": {"c": [1], "d": 0.5}, "e": None} | {"e": 1}, **WORK),
    ):
        pass
    with locked_for(folder, "key.json", {"a": 2}, **WORK, begun=lambda: False):
        pass
    with pytest.raises(UsageError, match="with other a"), locked_for(folder, "key.json", key | {"b": 1}, **WORK):
        pass


def test_what_is_left_out_now_is_no_change_of_what_is_asked():
    assert differing_keys({"a": 1}, {"a": 1, "b": 2}) == []
    assert differing_keys({"a": {"x": 1}}, {"a": {"x": 1, "y": 2}}) == ["a.y"]
    assert differing_keys({"a": {"x": 1}}, {"a": 1}) == differing_keys({"a": 1}, {"a": {"x": 1}}) == ["a"]
    assert differing_keys({"a": {"x": {"y": 1}, "z": 2}}, {"a": {"x": {"y": 2}, "z": 2}}) == ["a.x.y"]


def test_a_folder_with_other_things_is_left_alone_but_for_what_a_killed_claim_left(tmp_path):
    (tmp_path / ".key.json.4711").write_text("{")
    with locked_for(tmp_path, "key.json", {}, **WORK):
        pass
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes").touch()
    with pytest.raises(UsageError, match="which holds other things"), locked_for(tmp_path / "other", "k", {}, **WORK):
        pass
    (tmp_path / "key.json").write_text("[]")
    with (
        pytest.raises(UsageError, match="no JSON object, expected one that `speccompile thing` wrote"),
        locked_for(tmp_path, "key.json", {}, **WORK),
    ):
        pass
    with (
        pytest.raises(UsageError, match="expected a folder that can be written"),
        locked_for(tmp_path / "key.json", "k", {}, **WORK),
    ):
        pass


def test_one_process_at_a_time(tmp_path):
    code = (
        "import sys; from pathlib import Path; from speccompile.bundle.work_folders import locked_for\n"
        "with locked_for(Path(sys.argv[1]), 'k', {}, work='a', option='b', command='c'): pass"
    )
    other = [sys.executable, "-c", code, str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with locked_for(tmp_path, "k", {}, **WORK):
        beside = subprocess.run(other, env=environment, capture_output=True, text=True)
    assert "expected a folder that no other process fills" in beside.stderr
    assert subprocess.run(other, env=environment).returncode == 0
