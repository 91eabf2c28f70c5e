"""Lanes: copies of the checkout, in which mutants are tried in turn. The checkout itself is never changed.

They lie in build/mutants, which git ignores. Copies for Python are removed when the run ends; the copy in which C++ is
compiled stays, so that the next run compiles changed files only. `prepare` also repairs a copy that a killed run left.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from scripts.mutation.entries import ROOT, Mutant

WORK = ROOT / "build" / "mutants"
PACKAGE = "speccompile/native"
KERNELS = "libspeccompile_kernels"
STOPPED = threading.Event()
"""Set when the run ends early: no further command is started."""

_running: set[int] = set()
_guard = threading.Lock()


class CommandError(Exception):
    """A required command failed. Its message is the end of the command's output."""


@dataclass(frozen=True)
class Done:
    """Result of a command. code: its exit status, None if it reached its time limit; said: its output."""

    code: int | None
    said: str


def run(command: list[str], folder: Path, environment: dict[str, str], seconds: float | None = None) -> Done:
    """Run a command, and kill its process group at the end or after `seconds`."""
    with _guard:
        if STOPPED.is_set():
            raise KeyboardInterrupt
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
        _running.add(process.pid)
    try:
        said, _ = process.communicate(timeout=seconds)
        code: int | None = process.returncode
    except subprocess.TimeoutExpired:
        _kill(process.pid)
        said, code = process.communicate()[0], None
    finally:
        _kill(process.pid)  # what it has started may outlive it
        with _guard:
            _running.discard(process.pid)
    if STOPPED.is_set():
        raise KeyboardInterrupt
    return Done(code, said)


def stop_all() -> None:
    """Kill all running commands, and start no others."""
    with _guard:
        STOPPED.set()
        for group in _running:
            _kill(group)


def _kill(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # macOS says the second of a group that has ended
        os.killpg(group, signal.SIGKILL)


@dataclass
class Lane:
    """One copy. cores: number of cores that its commands use."""

    folder: Path
    cores: int
    is_native: bool = False
    _compiles: bool = field(default=False, init=False)

    @property
    def build(self) -> Path:
        """Return CMake's folder of a lane that compiles."""
        return self.folder.with_name(f"{self.folder.name}-build")

    def environment(self) -> dict[str, str]:
        """Return environment variables with which Python imports the copy's package."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "SPECCOMPILE_"))}
        more = {"PYTHONPATH": str(self.folder), "OMP_NUM_THREADS": str(self.cores)}
        return own | more | ({"SPECCOMPILE_NATIVE_BUILD": str(self.build)} if self.is_native else {})

    def prepare(self) -> None:
        """Make the copy equal to the checkout: only what differs is written, as compilers go by times."""
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT, check=True, capture_output=True, text=True,
        ).stdout.split("\0")  # fmt: skip
        wanted = {name for name in listed if name and (ROOT / name).is_file()}
        native = ROOT / PACKAGE
        for path in (*native.glob(f"{KERNELS}.*"), *(native / "installed").rglob("*")):
            if path.is_file():
                wanted.add(path.relative_to(ROOT).as_posix())
        for path in [path for path in self.folder.rglob("*") if path.is_file() or path.is_symlink()]:
            if path.relative_to(self.folder).as_posix() not in wanted:
                path.unlink()
        for name in wanted:
            _copy(ROOT / name, self.folder / name)
        found = run(
            [sys.executable, "-c", "import speccompile; print(speccompile.__file__)"], self.folder, self.environment()
        )
        if not Path(found.said.strip()).is_relative_to(self.folder):
            raise CommandError(f"received speccompile from {found.said.strip()}, expected the copy in {self.folder}")

    def put(self, mutant: Mutant) -> None:
        """Write a mutant into the copy."""
        self._write(mutant.file, mutant.mutated(self.folder))

    def restore(self, mutant: Mutant, text: str) -> None:
        """Write the original text of a mutant's file again."""
        self._write(mutant.file, text)

    def _write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(text)
        # Python compares a compiled module with the source's size and mtime in seconds: both may be equal.
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            compiled.unlink()

    def compile(self) -> None:
        """Compile the copy, and copy its kernels into its package. Raise CommandError."""
        from speccompile.native import packaging

        try:
            packaging._check_compiler()
            cmake = packaging._cmake()
        except packaging.CannotCompileError as error:
            raise CommandError(str(error)) from error
        if not self._compiles:
            settings = ["-DCMAKE_BUILD_TYPE=Release", "-DSPECCOMPILE_TESTS=ON", "-DCMAKE_COMPILE_WARNING_AS_ERROR=ON"]
            source = ["-S", str(self.folder / PACKAGE), "-B", str(self.build)]
            self._must([cmake, *source, *packaging._generator(), *settings])
            self._compiles = True
        self._must([cmake, "--build", str(self.build), "--parallel", str(self.cores)])
        for built in self.build.glob(f"{KERNELS}.*"):
            shutil.copy2(built, self.folder / PACKAGE / built.name)

    def _must(self, command: list[str]) -> None:
        done = run(command, self.folder, self.environment())
        if done.code:
            raise CommandError("\n".join(done.said.splitlines()[-20:]))

    def remove(self) -> None:
        """Remove the copy unless C++ is compiled in it."""
        if not self.is_native:
            shutil.rmtree(self.folder, ignore_errors=True)


def _copy(source: Path, destination: Path) -> None:
    if destination.is_file() and not destination.is_symlink() and destination.read_bytes() == source.read_bytes():
        return
    destination.parent.mkdir(parents=True, exist_ok=True)
    destination.unlink(missing_ok=True)
    shutil.copy(source, destination)
