"""Prepacked weights, cached on this machine and memory-mapped: all processes share them in the page cache.

When ONNX Runtime opens a graph, its kernels pack the weights into their own layout, which depends on the processor, and
every session holds a copy. It can write packed weights into a file and map them when it opens the graph again. This
module does that once for every graph. It keeps only the packed weights of the file, in one file each, named by content:
all graphs and bundles with the same weights have hard links to the same file.

This is safe by construction. ONNX Runtime still packs all weights of a graph, and maps a packed weight instead only if
both have the same hash. Packed weights of another processor, version or model are never used, only useless.
"""

import errno
import hashlib
import mmap
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from speccompile.bundle.cache import LIMIT, FolderCache
from speccompile.bundle.hashes import HASHES, hash_file, new_hasher, read_hashes
from speccompile.bundle.manifest import canonical_json
from speccompile.errors import BundleError, EngineError
from speccompile.machine.system import processor, trim_heap
from speccompile.progress import LOGGER, log_step
from speccompile.runtime.devices.onnx_file import PlaceholderInitializer, external_data, with_carriers

NAME = "packed"
"""Name of this cache."""
FORMAT = 1
"""Version of the entries."""

SMALLEST_GRAPH = 64 << 20
"""Minimum bytes of a graph's weights in the cache: a process takes as much anyway, for numpy and ONNX Runtime."""
SMALLEST_FILE = 64 << 10
"""Minimum bytes of a packed weight in the cache."""

ROOT = Path("/")
"""Folder to which paths in serialized graphs are relative. ONNX Runtime opens no file outside the folder it is
given."""

PAGE = 4096
SAVED = "saved.onnx"

T = TypeVar("T")
Places = list[tuple[int, int]]
"""Start and size of each buffer in a file."""
Save = Callable[[Path, Path], None]
"""Function that opens the graph in the first file and writes it to the second, with its weights, original and
packed."""


@dataclass(frozen=True)
class PrepackedWeights(FolderCache):
    """Cache of packed weights, with an entry for every graph."""

    def store(self, key: "Key", graph: Path, save: Save) -> None:
        """Pack the weights of a graph and store them. Raise EngineError, or the errors of `save`."""
        if key.size > self.limit:
            raise EngineError(f"its weights are {key.size / 1e9:.1f} GB, more than ${LIMIT} allows")
        content: dict[str, Any] = {"key": key.to_json()}
        with self.add_entry(key.digest, content) as part:
            # Room for all weights, original and packed, and for the packed ones again.
            if shutil.disk_usage(part).free < 4 * key.size:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.folder))
            save(graph, part / SAVED)
            trim_heap()
            content["packed"] = self._take_over(part / SAVED)

    def _take_over(self, saved: Path) -> dict[str, dict[str, Any]]:
        """Move the packed weights of a saved graph into separate files, and remove all other saved files.

        Return ONNX Runtime's key -> the name of the file and the sizes of the buffers in it.
        """
        packed: dict[str, dict[str, Any]] = {}
        tensors = list(external_data(saved.read_bytes()))
        for tensor in tensors:
            with _mapped(saved.with_name(tensor["location"])) as content:
                for key, places in _packed(tensor):
                    if key not in packed and sum(size for _, size in places) >= SMALLEST_FILE:
                        file = self._keep(content, places, saved.parent)
                        packed[key] = {"file": file, "sizes": [size for _, size in places]}
        for name in {saved.name, *(tensor["location"] for tensor in tensors)}:
            saved.with_name(name).unlink()
        return packed

    def _keep(self, content: mmap.mmap, places: Places, part: Path) -> str:
        """Write a file with some buffers, each at the start of a page. Return its name: the BLAKE3 of its content."""
        with memoryview(content) as view, ExitStack() as stack:
            buffers = [stack.enter_context(view[start : start + size]) for start, size in places]
            rows = [row for each in buffers for row in (each, bytes(_round_up(len(each)) - len(each)))]
            hasher = new_hasher()
            for row in rows:
                hasher.update(row)
            name = hasher.hexdigest()
            if not self._linked(name, part):
                with (part / name).open("wb") as file:
                    file.writelines(rows)
        return name

    def _linked(self, name: str, part: Path) -> bool:
        """Link an existing file with this content into `part`. Return whether it is there now."""
        if (part / name).exists():
            return True
        for other in self.folder.glob(f"[!.]*/{name}"):
            with suppress(OSError, BundleError):  # its entry is removed meanwhile, or the filesystem has no hard links
                if hash_file(other) == name:
                    os.link(other, part / name)
                    return True
        return False


@dataclass(frozen=True)
class Key:
    """Key of packed weights. files: path in the bundle -> BLAKE3; size: bytes of the weights."""

    files: dict[str, str]
    size: int
    onnxruntime: str
    processor: dict[str, str] = field(default_factory=processor)

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, "onnxruntime": self.onnxruntime, "processor": self.processor, "files": self.files}

    @property
    def digest(self) -> str:
        return hashlib.sha256(canonical_json(self.to_json())).hexdigest()


def weights_of(graph: Path) -> list[Path]:
    """Return the files in a graph's folder whose names occur in it: those of its weights, and normally no others."""
    model = graph.read_bytes()
    return [path for path in sorted(graph.parent.iterdir()) if path != graph and path.name.encode() in model]


def open_with_prepacked(
    folder: Path, file: str, save: Save, open_graph: Callable[[bytes], T], *, onnxruntime: str, verify: bool = True
) -> T | None:
    """Return the result of `open_graph` for a graph of the bundle in `folder`, with its packed weights mapped. `save`:
    see `Save`.

    The serialized graph names its weights relative to ROOT. onnxruntime: its version. verify: compare mapped files with
    their hashes. Return None, with a warning, if they cannot be cached or ONNX Runtime refuses them; without a warning
    for small graphs, for folders without hashes, as while a bundle is built, and with a limit of 0.
    """
    cache, graph = PrepackedWeights.named(NAME), folder / file
    if os.name != "posix" or not cache.limit or not (folder / HASHES).is_file():
        return None
    key = _key(folder, file, onnxruntime)
    if key.size < SMALLEST_GRAPH:
        return None

    def opened(verify: bool) -> T | None:
        with cache.open_entry(key.digest, "packed graph", verify=verify) as found:
            return open_graph(_with_packed(graph, *found)) if found else None

    try:
        if (known := opened(verify)) is not None:
            return known
        with log_step(f"packing the weights of {graph.name}, once on this machine"):
            cache.store(key, graph, save)
        return opened(verify=False)
    except (OSError, BundleError, EngineError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        LOGGER.warning("note: the weights of %s are held, not mapped from %s: %s", graph.name, cache.folder, reason)
        return None


def _key(folder: Path, file: str, onnxruntime: str) -> Key:
    records = read_hashes(folder, verify=False).files
    names = [file, *(path.relative_to(folder).as_posix() for path in weights_of(folder / file))]
    known = {name: records[name] for name in names if name in records}
    size = sum(record.size for name, record in known.items() if name != file)
    return Key({name: record.blake3 for name, record in known.items()}, size, onnxruntime)


def _with_packed(graph: Path, entry: Path, content: dict[str, Any]) -> bytes:
    """Return the serialized graph, with paths of its weights and of packed ones in `entry` relative to the root."""

    def carrier(key: str, packed: dict[str, Any]) -> PlaceholderInitializer:
        start, places = 0, []
        for size in packed["sizes"]:
            places.append(f"{start};{size};0")
            start += _round_up(size)
        return PlaceholderInitializer(from_root(entry / packed["file"]), {"prepacked_0": "|".join([key, *places])})

    carriers = [carrier(key, packed) for key, packed in content["packed"].items()]
    return with_carriers(graph.read_bytes(), lambda name: from_root(graph.parent / os.fsdecode(name)), carriers)


def from_root(path: Path) -> bytes:
    """Return a path as serialized graphs name it, with links followed."""
    return os.fsencode(path.resolve().relative_to(ROOT))


def _packed(tensor: dict[str, str]) -> Iterator[tuple[str, Places]]:
    """Yield ONNX Runtime's key of each packed form of a tensor, and the start and size of its buffers.

    It writes "key|start;size;checksum", and repeats the last three if a kernel packs into several buffers.
    """
    for name, text in tensor.items():
        if name.startswith("prepacked"):
            key, *places = text.split("|")
            numbers = [place.split(";")[:2] for place in places]
            yield key, [(int(start), int(size)) for start, size in numbers]


def _round_up(size: int) -> int:
    return -(-size // PAGE) * PAGE


@contextmanager
def _mapped(path: Path) -> Iterator[mmap.mmap]:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        yield content
