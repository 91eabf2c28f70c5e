"""The notebooks of docs/examples run from the first cell to the last, in a folder that looks like a clone."""

import os
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import Page
from tests.docs.running import ROOT, PageRun

nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")

NOTEBOOKS = sorted((ROOT / "docs/examples").glob("*.ipynb"))
SECONDS = 600


@pytest.mark.sweep("three notebooks, of which one builds bundles", but=["first-bundle"])
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, built_demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    PageRun(Page(path, (), needs_demo=True), tmp_path, built_demo)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=SECONDS, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert all(not cell.outputs and cell.execution_count is None for cell in notebook.cells if cell.cell_type == "code")
