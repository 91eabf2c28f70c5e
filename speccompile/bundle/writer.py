"""Write a bundle: in a hidden folder next to the output, moved to its final path when it is complete.

After any failure the output holds the old bundle or the new one, and the hidden folder is removed. The hidden folder of
a killed build is removed by the next build to the same output.
"""

import contextlib
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from speccompile.bundle.folders import lock_folder, replace_folder, sync
from speccompile.bundle.hashes import HASHES, hash_folder, write_hashes
from speccompile.bundle.manifest import LOCK, MANIFEST, PROOF, Manifest, canonical_json
from speccompile.bundle.reader import is_bundle, open_bundle
from speccompile.errors import BuildError


class BundleWriter:
    """Context manager: fill `folder` with graphs, weights and tokenizer, then call `finish`.

    Entering raises BuildError when the output cannot be used. Leaving without `finish` leaves no files; a failed write
    in between becomes a BuildError.
    """

    folder: Path

    def __init__(self, output: Path) -> None:
        self._output = output
        self._created: list[Path] = []
        self._lock: int | None = None

    def __enter__(self) -> Self:
        self._output = check_output(self._output)
        name, parent = self._output.name, self._output.parent
        self.folder = parent / f".{name}.{os.getpid()}-{secrets.token_hex(4)}.part"
        try:
            with as_build_error(f"no folder could be made in {parent}"):
                self._make_parents(parent)
                _remove_stale(self._output)
                self.folder.mkdir()
            self._lock = lock_folder(self.folder)
        except BaseException:
            self._clean_up()
            raise
        return self

    def finish(self, manifest: Manifest, lock: dict[str, Any], proof: dict[str, Any]) -> None:
        """Write the JSON files and the hashes, and replace the old bundle by the new one.

        Raise BundleError when a reader would refuse the folder, BuildError when a disk operation fails.
        """
        self.stage(manifest, lock, proof)
        with as_build_error(f"the bundle could not be written to {self._output}"):
            open_bundle(self.folder, verify=False)
            sync(self.folder, *self.folder.rglob("*"))
            replace_folder(self.folder, self._output)
            sync(self._output.parent)

    def stage(self, manifest: Manifest, lock: dict[str, Any], proof: dict[str, Any]) -> None:
        """Write the JSON files and the hashes, so that `folder` may be opened before it is complete. Raise BuildError
        when a disk operation fails."""
        with as_build_error(f"the bundle could not be written to {self._output}"):
            for name, data in ((MANIFEST, manifest.to_json()), (LOCK, lock), (PROOF, proof)):
                (self.folder / name).write_bytes(canonical_json(data))
            (self.folder / HASHES).unlink(missing_ok=True)
            write_hashes(self.folder, hash_folder(self.folder))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clean_up()
        if isinstance(error, OSError) and self._is_ours(error):
            with as_build_error(f"the bundle could not be written to {self._output}"):
                raise error

    def _is_ours(self, error: OSError) -> bool:
        """Return whether a file of the bundle caused the error. The error of a failed write names no file."""
        if error.filename is None:
            return error.errno is not None
        return Path(error.filename).is_relative_to(self.folder)

    def _make_parents(self, parent: Path) -> None:
        missing = [folder for folder in (parent, *parent.parents) if not folder.exists()]
        for folder in reversed(missing):
            folder.mkdir(exist_ok=True)
            self._created.append(folder)

    def _clean_up(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
        for folder in reversed(self._created):
            with contextlib.suppress(OSError):  # the bundle lies in it, or other files
                folder.rmdir()


def folder_path(name: str, asked: str | os.PathLike[str]) -> Path:
    """Return the path of a folder that a caller in Python names. name: of the argument. Raise BuildError for a value
    that is none."""
    if not isinstance(asked, str | os.PathLike) or not os.fspath(asked):
        raise BuildError(
            f"{name}: received {asked!r}, expected the path of a folder", hint=f'for example {name}="build/demo"'
        )
    return Path(asked)


def check_output(output: Path) -> Path:
    """Return the output path with all links resolved. Raise BuildError when it may not or cannot be written. Leave no
    files."""
    with as_build_error(f"the output {output} cannot be used"):
        resolved = output.resolve()
        _check_replaceable(resolved)
        ancestor = next(folder for folder in resolved.parents if folder.exists())
        with tempfile.TemporaryDirectory(prefix=f".{resolved.name}.", dir=ancestor):
            return resolved


def _check_replaceable(output: Path) -> None:
    if not output.exists():
        return
    if not output.is_dir():
        raise BuildError(f"the output {output} is a file, expected a folder", hint="give another --output (output=..)")
    if not is_bundle(output) and any(output.iterdir()):
        raise BuildError(
            f"the output {output} is not empty and not a bundle: expected {MANIFEST} and {HASHES} in it",
            hint="give another --output (output=..), or remove the folder yourself if nothing in it is needed",
        )


@contextlib.contextmanager
def as_build_error(failure: str) -> Iterator[None]:
    """Turn an OSError inside a `with` block into a BuildError that begins with `failure` and ends with the reason."""
    try:
        yield
    except OSError as error:
        raise BuildError(
            f"{failure}: {error.strerror or error}",  # numpy's writes have no strerror
            hint="check the folder's permissions and free space, or give another --output (output=..)",
        ) from error


def _remove_stale(output: Path) -> None:
    for aside in _leftovers(output, "old"):
        if not output.exists():
            aside.rename(output)
        else:
            shutil.rmtree(aside, ignore_errors=True)
    for folder in _leftovers(output, "part"):
        if (lock := lock_folder(folder)) is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def _leftovers(output: Path, suffix: str) -> list[Path]:
    pattern = re.compile(rf"\.{re.escape(output.name)}\.\d+-[0-9a-f]+\.{suffix}")
    return [path for path in output.parent.iterdir() if pattern.fullmatch(path.name)]
