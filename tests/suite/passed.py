"""What has passed, so that a run that was interrupted goes on where it was."""

import hashlib
import os
import subprocess
from pathlib import Path

import pytest


def state(root: Path) -> str:
    """Return a name for the last commit and all that differs from it."""
    digest = hashlib.sha256()
    for command in (["rev-parse", "HEAD"], ["diff", "HEAD", "--binary"]):
        digest.update(_git(root, *command) + b"\0")
    for name in sorted(_git(root, "ls-files", "--others", "--exclude-standard", "-z").split(b"\0")):
        path = root / os.fsdecode(name)
        if name and path.is_file():
            digest.update(name + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _git(root: Path, *arguments: str) -> bytes:
    try:
        return subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=True).stdout
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        raise pytest.UsageError(f"--resume goes by the state of the checkout, and git says: {error}") from None


class Passed:
    """A file with a line for each test that was run on one state of the checkout: what it did last counts."""

    def __init__(self, folder: Path, root: Path) -> None:
        self._file = folder / f"passed-{state(root)}"
        for other in folder.glob("passed-*"):
            if not other.name.startswith(self._file.name):
                other.unlink(missing_ok=True)
        self._taken: Path | None = None
        self._failed: set[str] = set()

    def snapshot(self) -> Path:
        """Return a copy that stays as it is: all workers leave out the same tests, one that starts late as well."""
        self._taken = self._file.with_name(f"{self._file.name}-{os.getpid()}")
        self._taken.write_bytes(self._file.read_bytes() if self._file.exists() else b"")
        return self._taken

    @staticmethod
    def read(path: Path) -> set[str]:
        """Return the tests that passed. A line that was cut off by an interruption does not count."""
        passed: set[str] = set()
        for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
            outcome, _, nodeid = line.partition(" ")
            if line.endswith("\n") and outcome in ("passed", "failed"):
                (passed.add if outcome == "passed" else passed.discard)(nodeid[:-1])
        return passed

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.add(report.nodeid)
        if report.when == "teardown":
            outcome = "failed" if report.nodeid in self._failed else "passed"
            with self._file.open("a", encoding="utf-8") as file:  # at once: what passed is known after a kill
                file.write(f"{outcome} {report.nodeid}\n")

    def close(self) -> None:
        if self._taken is not None:
            self._taken.unlink(missing_ok=True)
