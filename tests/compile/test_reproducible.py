"""The same recipe gives the same bundle, byte for byte, wherever and whenever it is built."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.compile.tiny_bundles import PROVEN, contents

pytestmark = pytest.mark.builds(2)

COMMAND_LINE = "from speccompile.cli import main; main()"


@pytest.mark.sweep("a bundle with its proof", but=["lookup"])
@pytest.mark.parametrize("name", ["lookup_5", "model_1"])
def test_another_process_elsewhere_builds_the_same_bundle(built, tmp_path, name):
    """model_1 is built with its proof, so that this is a comparison of proofs as well. Nothing is taken from the cache,
    which the first one has filled."""
    case = built(name)
    shutil.copytree(case.folder, tmp_path / "copy", ignore=shutil.ignore_patterns("bundle"))
    words = ["-q", "build", tmp_path / "copy", "--output", tmp_path / "other", "--no-cache"]
    words += [] if name in PROVEN else ["--skip-prove"]
    command = [sys.executable, "-c", COMMAND_LINE, *words]
    environment = os.environ | {"PYTHONHASHSEED": "1", "OMP_NUM_THREADS": "1", "TZ": "Asia/Tokyo"}
    subprocess.run(command, env=environment, cwd=tmp_path, stdout=subprocess.DEVNULL, check=True)
    first, second = contents(case.path), contents(tmp_path / "other")
    assert [file for file in first | second if first.get(file) != second.get(file)] == []
    assert first["hashes.json"]
