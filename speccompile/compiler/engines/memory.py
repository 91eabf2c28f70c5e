"""Memory of a process and of the machine, from the kernel."""

from dataclasses import dataclass

from speccompile.machine.system import process_sizes


@dataclass(frozen=True)
class Memory:
    """Memory in bytes. own: held now without mapped files; peak: maximum so far, mapped files included."""

    own: int
    peak: int


def read_memory(process_id: int | None = None) -> Memory:
    """Return the memory of a process, by default this one. Zeros for an ended process, and if the kernel does not
    report it."""
    sizes = process_sizes(process_id)
    return Memory(own=sizes.get("RssAnon", 0) + sizes.get("RssShmem", 0), peak=sizes.get("VmHWM", 0))
