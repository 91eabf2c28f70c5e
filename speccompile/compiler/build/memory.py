"""Release memory between the steps of a build."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from speccompile.machine.system import process_sizes, trim_heap

WORTH_FREEING = 256 << 20
"""Bytes by which a process must have grown to be freed: a collection takes a tenth of a second, and those of a small
build would be a thirtieth of its time."""

_freed_at = [0]
"""Bytes of this process's own memory when it was last freed."""


@contextmanager
def settled_heap() -> Iterator[None]:
    """Exclude the objects at the beginning of a build, mainly torch and transformers, from garbage collection, and let
    it work during the build where it is paused, as it is while they are imported.

    Steps of a build end with a full collection, which would scan all of them (measured: a third of a second each, a
    sixth of a small build). So would one before. A heap that the program has frozen itself stays frozen.
    """
    frozen, paused = gc.get_freeze_count() > 0, not gc.isenabled()
    if not frozen:
        gc.freeze()
    gc.enable()
    _freed_at[0] = _own_bytes()
    try:
        yield
    finally:
        if paused:
            gc.disable()
        if not frozen:
            gc.unfreeze()


def free_memory() -> None:
    """Free objects in reference cycles, and return free heap to the system, if the process has grown since the last
    time.

    A traced program holds its model in cycles. Freed weights of an engine stay in glibc's heap otherwise (measured: 1.3
    GB of 1.8 after a 1.4 GB model), and the next step would add to them.
    """
    if _own_bytes() < _freed_at[0] + WORTH_FREEING:
        return
    gc.collect()
    trim_heap()
    _freed_at[0] = _own_bytes()


def _own_bytes() -> int:
    """Return the size of this process's own memory; without /proc a size that is always worth freeing."""
    return process_sizes().get("RssAnon", _freed_at[0] + WORTH_FREEING)
