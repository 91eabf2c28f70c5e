"""`scripts/NAME --help` says what a script does, and does nothing: it neither installs nor compiles."""

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
SHELL = [file for file in sorted(SCRIPTS.iterdir()) if file.is_file() and "bash" in file.read_text().split("\n")[0]]


@pytest.mark.parametrize("script", SHELL, ids=lambda file: file.name)
def test_help_is_the_head_of_the_script(script, tmp_path):
    copied = tmp_path / "scripts" / script.name  # without scripts/setup beside it, which any work would call
    copied.parent.mkdir()
    shutil.copy(script, copied)
    shown = subprocess.run([copied, "--help"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (shown.returncode, shown.stderr) == (0, "")
    head = script.read_text().partition("\nset ")[0].splitlines()[1:]
    assert shown.stdout.splitlines() == [line.removeprefix("#").removeprefix(" ") for line in head]
