"""hashes.json: the BLAKE3 hash and the size of every other file of a bundle, and one digest of them all.

    {"digest": <BLAKE3 of the canonical JSON of "files">, "files": {"graphs/x.onnx": {"blake3": <hex>, "bytes": 12}}}

The digest is the bundle's identity. The file must be canonical JSON, so that no byte of it can change undetected.
"""

import json
import mmap
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from time import perf_counter
from typing import TYPE_CHECKING, Any

from speccompile.bundle.manifest import canonical_json
from speccompile.errors import BundleError
from speccompile.machine.plain_files import read_plain
from speccompile.progress import LOGGER, progress_counter

if TYPE_CHECKING:
    from blake3 import blake3

HASHES = "hashes.json"

_WINDOW = 8 << 20
"""Bytes that are hashed at a time, on all cores, while the system reads the next window."""

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""Escape of one half of a surrogate pair, as JSON writes it."""
_COPY_AGAIN = "copy the bundle again from where it was built, or build it again"


@dataclass(frozen=True)
class FileRecord:
    """BLAKE3 of a file's content in hexadecimal digits, and its size in bytes."""

    blake3: str
    size: int


@dataclass(frozen=True)
class Hashes:
    """Hashes of a folder. `files`: relative posix path -> record; `digest` identifies all of them."""

    digest: str
    files: dict[str, FileRecord]

    def to_bytes(self) -> bytes:
        """Return the content of hashes.json."""
        return canonical_json({"digest": self.digest, "files": _rows(self.files)})


def hash_folder(folder: Path) -> Hashes:
    """Return the hashes of all files below `folder` except hashes.json itself."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / HASHES)
    files = {path.relative_to(folder).as_posix(): FileRecord(hash_file(path), path.stat().st_size) for path in paths}
    return Hashes(_digest(files), files)


def write_hashes(folder: Path, hashes: Hashes) -> None:
    """Write hashes.json."""
    (folder / HASHES).write_bytes(hashes.to_bytes())


def read_json(path: Path) -> Any:
    """Return the value in a JSON file. Raise BundleError when it cannot be read or is no JSON."""
    try:
        return unicode_json(read_plain(path))
    except FileNotFoundError:
        raise BundleError(f"{path}: the file is missing", hint=_COPY_AGAIN) from None
    except OSError as error:
        raise BundleError(f"{path}: cannot be read: {error.strerror}", hint=_COPY_AGAIN) from error
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{path}: expected JSON: {error}", hint=_COPY_AGAIN) from error


def unicode_json(content: bytes) -> Any:
    """Return a JSON value. Raise ValueError for an object with half a surrogate pair, which `json` lets pass; callers
    refuse other values than objects."""
    text = content.decode()
    value = json.loads(text)
    if isinstance(value, dict) and _SURROGATE.search(text):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("received a text with half a surrogate pair, which is no Unicode text") from None
    return value


def read_hashes(folder: Path, *, verify: bool = True) -> Hashes:
    """Read hashes.json. Raise BundleError when it is not as `write_hashes` wrote it.

    With verify=False, skip only the digest, which needs the blake3 package.
    """
    path = folder / HASHES
    check_inside(path, folder)
    data = read_json(path)
    hashes = _parse(data, path)
    if read_plain(path) != canonical_json(data):
        raise BundleError(f"{path}: the file was edited: it is not canonical JSON", hint=_COPY_AGAIN)
    if verify and (digest := _digest(hashes.files)) != hashes.digest:
        raise BundleError(
            f"{path}: the file was edited: digest {hashes.digest}, its files give {digest}", hint=_COPY_AGAIN
        )
    return hashes


def check_inside(path: Path, folder: Path) -> None:
    """Raise BundleError for a link that leads out of `folder`."""
    if not path.resolve().is_relative_to(folder.resolve()):
        raise BundleError(f"{path}: leads out of the bundle, to {path.resolve()}", hint=_COPY_AGAIN)


def check_files(folder: Path, hashes: Hashes, *, verify: bool = True) -> None:
    """Raise BundleError for the first file that is missing, truncated or outside `folder`, and with `verify` for the
    first edited one."""
    for relative, record in hashes.files.items():
        path = folder / relative
        if not path.is_file():
            raise BundleError(f"{path}: the file is missing; {HASHES} lists it", hint=_COPY_AGAIN)
        check_inside(path, folder)
        if (size := path.stat().st_size) != record.size:
            raise BundleError(f"{path}: has {size} bytes, expected {record.size}", hint=_COPY_AGAIN)
    if verify:
        check_content(folder, hashes.files)


def check_content(folder: Path, files: Mapping[str, FileRecord]) -> None:
    """Raise BundleError for the first file whose content differs from its hash; a check of more than one second logs
    its duration."""
    start, total = perf_counter(), sum(record.size for record in files.values())
    with progress_counter(f"verifying {folder}", total, "bytes") as advance:
        for relative, record in files.items():
            path = folder / relative
            if (found := hash_file(path, advance)) != record.blake3:
                raise BundleError(
                    f"{path}: the file was edited: BLAKE3 {found}, expected {record.blake3}", hint=_COPY_AGAIN
                )
    if (seconds := perf_counter() - start) > 1:
        LOGGER.info("verified %.1f GB in %.1f s", total / 1e9, seconds)


def _rows(files: dict[str, FileRecord]) -> dict[str, dict[str, str | int]]:
    return {path: {"blake3": record.blake3, "bytes": record.size} for path, record in files.items()}


def _digest(files: dict[str, FileRecord]) -> str:
    return new_hasher().update(canonical_json(_rows(files))).hexdigest()


def hash_file(path: Path, advance: Callable[[int], None] = lambda size: None) -> str:
    """Return BLAKE3 of a file's content in hexadecimal digits. advance: receives the number of further bytes hashed.

    Raise BundleError when the file cannot be read.
    """
    hasher = new_hasher()
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if not size:  # no system maps an empty file
                return hasher.hexdigest()
            with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as content, memoryview(content) as view:
                for start in range(0, size, _WINDOW):
                    _read_ahead(file.fileno(), start)
                    with view[start : start + _WINDOW] as window:
                        hasher.update(window)
                        advance(len(window))
    except OSError as error:
        raise BundleError(f"{path}: cannot be read: {error.strerror}", hint=_COPY_AGAIN) from error
    return hasher.hexdigest()


def _read_ahead(file: int, start: int) -> None:
    """Ask the system to read the window after the one at `start`; by itself it waits until a thread accesses a page."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(file, start + _WINDOW, _WINDOW, os.POSIX_FADV_WILLNEED)


def new_hasher() -> "blake3":
    """Return a BLAKE3 hasher on all cores. Raise BundleError if the package is missing."""
    try:
        from blake3 import blake3
    except ImportError:
        raise BundleError(
            "hashes.json is made with BLAKE3: expected the Python package blake3, which is not installed",
            hint="pip install blake3, or open the bundle with verify=False (on the command line --no-verify)",
        ) from None
    return blake3(max_threads=blake3.AUTO)


def _parse(data: Any, path: Path) -> Hashes:
    match data:
        case {"digest": str(digest), "files": dict(rows), **others} if not others:
            return Hashes(digest, {name: _record(name, row, path) for name, row in rows.items()})
    raise BundleError(f'{path}: expected {{"digest": text, "files": object}} and nothing else', hint=_COPY_AGAIN)


def _record(name: str, row: Any, path: Path) -> FileRecord:
    _check_relative(name, path)
    match row:
        case {"blake3": str(digest), "bytes": int(size), **others} if not others and not isinstance(size, bool):
            return FileRecord(digest, size)
    raise BundleError(f'{path}: {name}: expected {{"blake3": text, "bytes": number}}, got {row!r}', hint=_COPY_AGAIN)


def _check_relative(name: str, path: Path) -> None:
    windows, posix = PureWindowsPath(name), PurePosixPath(name)
    rooted = posix.is_absolute() or windows.drive or windows.root
    if rooted or ".." in posix.parts or "\\" in name or "\0" in name or str(posix) != name or name in (".", HASHES):
        raise BundleError(
            f"{path}: the path {name!r} leads out of the bundle or is not plain, unlike 'graphs/verify.onnx'",
            hint=_COPY_AGAIN,
        )
