"""Cache of kernels that TensorRT-RTX has compiled on this machine.

TensorRT-RTX compiles the kernels of an engine when they first run, which costs seconds at every start. The compiled
kernels lie in the user's cache folder, one file for each pair of an engine and a GPU; deleting it costs only time. The
library itself refuses kernels of another version, driver or GPU.
"""

import weakref
from pathlib import Path
from typing import Any

from blake3 import blake3

from speccompile.bundle.cache import user_folder
from speccompile.bundle.folders import write_atomically
from speccompile.progress import LOGGER


class KernelCache:
    """Kernels of one engine: read when it is opened, written when it is released or the process ends.

    config: the runtime config of its contexts. identity: library, version and GPU.
    """

    def __init__(self, config: Any, plan: bytes, identity: str) -> None:
        self.path = _folder() / f"{blake3(plan).update(identity.encode()).hexdigest()[:32]}.kernels"
        cache = config.create_runtime_cache()
        known = _read(self.path)
        self.hit = bool(known) and bool(cache.deserialize(known))
        """True if kernels of an earlier process were loaded."""
        config.set_runtime_cache(cache)
        weakref.finalize(self, _write, cache, self.path, blake3(known).digest())


def _folder() -> Path:
    return user_folder("kernels")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _write(cache: Any, path: Path, known: bytes) -> None:
    """Write the kernels if they have changed. known: digest of the file's content."""
    kernels = bytes(cache.serialize())
    if blake3(kernels).digest() == known:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, kernels)
    except OSError as error:
        LOGGER.warning("cannot write the kernel cache, the next start recompiles: %s", error)
