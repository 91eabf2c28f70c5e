"""Folders that a training writes: what is refused before any work."""

import os
from pathlib import Path

import pytest

from speccompile.errors import SpeccompileError
from speccompile.recipe.training import plan_training


def test_a_work_folder_that_holds_something_else_is_refused(written, tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "notes.txt").write_text("mine")
    with pytest.raises(SpeccompileError, match=r"--work: received .*a folder that holds something else") as caught:
        plan_training(written(), tmp_path / "work")
    assert caught.value.hint


@pytest.mark.parametrize(("output", "work"), [("new", "new"), ("new", "new/work"), ("work/new", "work")])
def test_the_work_is_not_replaced_with_what_is_left(written, output, work, tmp_path):
    with pytest.raises(SpeccompileError, match=r"drafter\.model: received .*, expected two folders") as caught:
        plan_training(written(f"drafter.model={output}"), tmp_path / work)
    assert caught.value.hint


def test_a_folder_that_cannot_be_made_is_refused(written, refused, tmp_path):
    (tmp_path / "link").symlink_to("gone")
    for name in ("docs/a.md/new", "link", "link/new"):
        assert "where no folder can be" in refused(f"drafter.model={name}")
    with pytest.raises(SpeccompileError, match=r"--work: received .*, where nothing can be written") as caught:
        plan_training(written(), tmp_path / "docs/a.md/work")
    assert caught.value.hint


def test_folders_that_cannot_be_written_are_refused_before_hours_of_work(written, refused, tmp_path, monkeypatch):
    (tmp_path / "old").mkdir()
    monkeypatch.setattr(
        os, "access", lambda path, mode: mode != os.W_OK or Path(path) not in (tmp_path, tmp_path / "old")
    )
    assert "where no folder can be" in refused("drafter.model=new")
    assert "in a folder that cannot be written" in refused("drafter.model=old")
    (tmp_path / "disk").mkdir()
    for name in ("old", "new/work"):
        with pytest.raises(SpeccompileError, match=r"--work: received .*, where nothing can be written"):
            plan_training(written("drafter.model=disk/new"), tmp_path / name)
