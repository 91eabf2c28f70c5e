"""Check what scripts/wheels and scripts/tar refuse before they make anything; tests/compile tries what they make."""

import fcntl
import re
import subprocess
from fnmatch import fnmatch
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--halp"], "received '--halp', expected a folder, or nothing"),
        (["FOLDER", "x86_64", "riscv64"], "received the machine 'riscv64', expected x86_64 or aarch64"),
    ],
)
@pytest.mark.parametrize("script", ["wheels", "tar"])
def test_wrong_words_are_refused(script: str, words: list[str], told: str, tmp_path: Path) -> None:
    folder = tmp_path / "wheels"
    run = subprocess.run(
        [SCRIPTS / script, *(str(folder) if word == "FOLDER" else word for word in words)],
        capture_output=True,
        text=True,
    )
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith(f"{script}: {told}\n{script}: hint: ")
    assert not folder.exists()


def test_folder_in_which_another_run_works_is_refused(tmp_path: Path) -> None:
    with (tmp_path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run = subprocess.run([SCRIPTS / "wheels", tmp_path], capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr.startswith(f"wheels: another run is at work in {tmp_path}\nwheels: hint: ")


def test_archives_for_devices_in_the_same_folder_are_no_source_distributions() -> None:
    """Keep the archives, which would be deleted if wheels were made of them."""
    patterns = re.findall(r"/(speccompile-\S*\.tar\.gz)", (SCRIPTS / "wheels").read_text())
    assert len(patterns) == 3
    for pattern in patterns:
        assert fnmatch("speccompile-0.1.0.tar.gz", pattern)
        assert not fnmatch("speccompile-native-0.1.0-x86_64.tar.gz", pattern)
