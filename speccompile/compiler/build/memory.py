"""Release memory between the steps of a build."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from speccompile.machine.system import trim_heap


@contextmanager
def settled_heap() -> Iterator[None]:
    """Exclude the objects at the beginning of a build, mainly torch and transformers, from garbage collection.

    Each step of a build ends with a full collection, which would scan all of them (measured: a third of a second each,
    a sixth of a small build). Nothing changes in a program that has frozen its heap itself.
    """
    frozen = gc.get_freeze_count() > 0
    if not frozen:
        gc.collect()
        gc.freeze()
    try:
        yield
    finally:
        if not frozen:
            gc.unfreeze()


def free_memory() -> None:
    """Free objects in reference cycles, and return free heap to the system.

    A traced program holds its model in cycles. Freed weights of an engine stay in glibc's heap otherwise (measured: 1.3
    GB of 1.8 after a 1.4 GB model), and the next step would add to them.
    """
    gc.collect()
    trim_heap()
