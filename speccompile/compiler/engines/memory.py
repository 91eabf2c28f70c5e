"""Memory of a process and of the machine, from the kernel."""

from dataclasses import dataclass

from speccompile.machine.system import process_sizes


@dataclass(frozen=True)
class Memory:
    """In bytes. own: what the process holds now beside the files it maps; peak: the most it held, with them."""

    own: int
    peak: int


def read_memory(process_id: int | None = None) -> Memory:
    """Memory of a process, by default this one. Zeros for one that has ended, and where the kernel does not tell."""
    sizes = process_sizes(process_id)
    return Memory(own=sizes.get("RssAnon", 0) + sizes.get("RssShmem", 0), peak=sizes.get("VmHWM", 0))
