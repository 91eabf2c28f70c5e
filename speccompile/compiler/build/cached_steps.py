"""Build cache: skip a step whose key has a stored result.

A key covers all that a step depends on: its record of inputs (see `cache_key`), with the content of checkpoints and of
the graphs that it reads; the versions of the packages involved, our own code and the processor. So a change repeats
only the steps that depend on it, and a bundle is the same with and without the cache.
"""

import hashlib
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import onnx_ir as ir

import speccompile
from speccompile import native
from speccompile.bundle.cache import FolderCache
from speccompile.bundle.file_hashes import cached_file_hash
from speccompile.bundle.hashes import new_hasher
from speccompile.bundle.manifest import canonical_json
from speccompile.compiler.build.cache_key import cache_key
from speccompile.compiler.lower.files import write_tensors
from speccompile.compiler.weights.graph import identity
from speccompile.drafters import folders_elsewhere
from speccompile.machine.system import processor
from speccompile.progress import LOGGER

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

PACKAGES = ("torch", "transformers", "onnx", "onnx-ir", "onnxscript", "onnxruntime", "tokenizers", "numpy")
"""Packages whose versions affect a build."""

_FORMAT = 2
"""Version of the entries."""

T = TypeVar("T")


@dataclass(frozen=True)
class WrittenTensors:
    """Tensors of a weight file. kinds: dtype and shape of each; made_of: how each is computed from its sources."""

    kinds: list[list[Any]]
    made_of: list[Any]


class CachedSteps:
    """The steps of one build."""

    def __init__(self, kept: FolderCache | None = None) -> None:
        """kept: the cache; None to run every step and store nothing."""
        self._cache = kept if kept is not None and kept.limit else None

    def result(self, title: str, inputs: "DataclassInstance", make: Callable[[], T]) -> T:
        """Return the JSON result of `make`, or its stored result for the same inputs. title: description of the step in
        messages; inputs: the record of all that `make` depends on."""
        return self.files(title, inputs, Path(), [], make)

    def files(
        self, title: str, inputs: "DataclassInstance", folder: Path, names: Iterable[str], make: Callable[[], T]
    ) -> T:
        """Return the result of a step that also writes files: those of `names` that exist in `folder` afterwards."""
        if self._cache is None:
            return make()
        whole = {"format": _FORMAT, "step": title, "made by": toolchain_key(), "inputs": cache_key(inputs)}
        digest = hashlib.sha256(canonical_json(whole)).hexdigest()
        try:
            with self._cache.open_entry(digest, f"result of '{title}'") as found:
                if found is not None:
                    entry, content = found
                    for name in content["names"]:
                        (folder / name).parent.mkdir(parents=True, exist_ok=True)
                        shutil.copyfile(entry / _flat(name), folder / name)
                    LOGGER.info("%s: from the cache", title)
                    known: T = content["result"]
                    return known
        except OSError as error:
            if error.filename is None or not str(error.filename).startswith(str(self._cache.folder)):
                raise  # the disk of the build is full
            self._give_up(error)
            return make()
        result = make()
        self._keep(digest, title, folder, [name for name in names if (folder / name).is_file()], result)
        return result

    def write(self, tensors: Sequence[ir.TensorProtocol], folder: Path, name: str) -> Sequence[ir.ExternalTensor]:
        """Write tensors as `lower.files.write_tensors` does; a stored file of the same tensors is copied, for whichever
        graph."""
        kinds = [[tensor.dtype.name, list(tensor.shape.numpy())] for tensor in tensors]

        def make() -> list[list[int]]:
            return [[tensor.offset or 0, tensor.length or 0] for tensor in write_tensors(tensors, folder, name)]

        inputs = WrittenTensors(kinds, [identity(tensor) for tensor in tensors] if self._cache else [])
        places = self.files(f"writing {name}", inputs, folder, [name], make)
        return [
            ir.ExternalTensor(
                name, offset, length, tensor.dtype, shape=ir.Shape(tensor.shape), name=str(tensor.name), base_dir=folder
            )
            for tensor, (offset, length) in zip(tensors, places, strict=True)
        ]

    def _keep(self, digest: str, title: str, folder: Path, names: list[str], result: Any) -> None:
        """Store a result, if the cache has space for it."""
        if self._cache is None:
            return
        size = sum((folder / name).stat().st_size for name in names)
        try:
            self._cache.folder.mkdir(parents=True, exist_ok=True)
            if size > self._cache.limit or 2 * size > shutil.disk_usage(self._cache.folder).free:
                LOGGER.info("%s: not kept, its %.1f GB have no room in the cache", title, size / 1e9)
                return
            content = {"key": {"step": title}, "names": names, "result": result}
            with self._cache.add_entry(digest, content) as part:
                for name in names:
                    shutil.copyfile(folder / name, part / _flat(name))
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        assert self._cache is not None
        LOGGER.warning("note: cannot write the build cache in %s: %s", self._cache.folder, error.strerror or error)
        self._cache = None


def _flat(name: str) -> str:
    """Return the name of a file in an entry, which has no folders."""
    return name.replace("/", "|")


@cache
def toolchain_key() -> dict[str, Any]:
    """Return the part of a key that affects every step: versions, our own code and that of external drafting methods,
    the kernels, and the processor."""
    hasher = new_hasher()
    for folder in (Path(speccompile.__file__).parent, *folders_elsewhere()):
        for path in sorted(folder.rglob("*.py")):
            hasher.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    library = native.library()
    return {
        "code": hasher.hexdigest(),
        "kernels": [native.kernels(), cached_file_hash(library) if library else ""],
        "versions": {name: version(name) for name in PACKAGES},
        "processor": processor(),
    }
