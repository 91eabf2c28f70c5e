"""Mutants as they are written down: a small mistake each, and the tests that must notice it."""

import hashlib
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "mutants"
NATIVE = "speccompile/native/"


class EntryError(Exception):
    """An entry that cannot be used as it is written."""


@dataclass(frozen=True)
class Mutant:
    """One mistake. file: relative to the root; before: a text that it has once; after: what stands there instead.

    breaks: the promise that nobody keeps then. tests: pytest's names of tests that pass without the mistake; one at
    least must fail with it.
    """

    id: str
    file: str
    before: str
    after: str
    breaks: str
    tests: tuple[str, ...]

    @property
    def is_native(self) -> bool:
        """Return whether a mutant needs a compilation."""
        return self.file.startswith(NATIVE) and not self.file.endswith(".py")

    def apply(self, text: str) -> str:
        """Return a text with the mistake. Raises EntryError where its place is not there, or not the only one."""
        if self.before == self.after:
            raise EntryError(f"{self.id}: changes nothing")
        count = text.count(self.before)
        if count != 1:
            raise EntryError(f"{self.id}: received {self.file} with {count} places for {self.before!r}, expected one")
        return text.replace(self.before, self.after)

    def mutated(self, root: Path = ROOT) -> str:
        """Return the text of the file below a root with the mistake. Raises EntryError as `apply`."""
        path = root / self.file
        if not path.is_file():
            raise EntryError(f"{self.id}: received {self.file}, which is not there")
        return self.apply(path.read_text())

    def digest(self, root: Path = ROOT) -> str:
        """Return what its result depends on, as far as that is cheap to say: the mistake in its file, and its tests."""
        hasher = hashlib.sha256()
        for part in (self.id, self.file, self.mutated(root), *self.tests):
            hasher.update(part.encode() + b"\0")
        for file in sorted({test.partition("::")[0] for test in self.tests}):
            hasher.update((root / file).read_bytes())
        return hasher.hexdigest()


def read_mutants(folder: Path = FOLDER) -> list[Mutant]:
    """Return all mutants of a folder's files, in order. Raises EntryError for what is no such file."""
    found: list[Mutant] = []
    for path in sorted(folder.glob("*.toml")):
        try:
            rows = tomllib.loads(path.read_text())["mutant"]
            found += [Mutant(**(row | {"tests": tuple(row["tests"])})) for row in rows]
        except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
            raise EntryError(f"{path.name}: received something that is no list of mutants: {error}") from error
    twice = sorted({each.id for each in found if sum(other.id == each.id for other in found) > 1})
    if twice:
        raise EntryError(f"received several mutants of the names {', '.join(twice)}, expected one of each")
    return found
