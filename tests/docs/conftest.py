"""What the tests of pages share: the demo, built once a session."""

import fcntl
from pathlib import Path

import pytest

from tests.docs.running import ROOT
from tests.suite import counting


@pytest.fixture(scope="session")
def built_demo(shared_folder: Path) -> Path:
    """Return the bundle of recipes/demo, its proof shorter. Workers share a folder: the first builds it, the others
    wait."""
    folder = shared_folder / "built-demo"
    with (shared_folder / "built-demo.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            from speccompile.compiler.build import build
            from speccompile.recipe import load_recipe, make_plan

            with counting.shared("built demo"):
                build(make_plan(load_recipe(ROOT / "recipes/demo", ["prove.max_new_tokens=16"])), folder)
    return folder
