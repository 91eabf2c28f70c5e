"""Memory and processors of this process, as the system reports them."""

import ctypes
import gc
import math
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

ROOT = Path("/")


def process_sizes(process_id: int | None = None) -> dict[str, int]:
    """Return sizes in bytes by their names in proc(5), such as RssAnon; by default of this process.

    Empty for a process that has ended, and on systems without /proc. Not `resource.getrusage`: its peak begins with
    that of the parent.
    """
    try:
        lines = Path(f"/proc/{process_id or 'self'}/status").read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.split(":") for line in lines if line.endswith(" kB"))
    return {key: int(value.split()[0]) * 1024 for key, value in pairs}


def proportional_set_size() -> int | None:
    """Return the proportional set size in bytes: a shared page counts with its share. None if the system does not
    report it."""
    words = _read(Path("/proc/self/smaps_rollup")).split()
    return int(words[words.index("Pss:") + 1]) * 1024 if "Pss:" in words else None


def trim_heap() -> None:
    """Return free heap memory to the system if the C library can: glibc keeps much of what large buffers leave."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


@contextmanager
def collection_paused() -> Iterator[None]:
    """Pause garbage collection, as for imports: torch and transformers make half a million objects, and collections
    while they do so take a quarter of their time (measured: 0.9 of 3.5 s)."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@dataclass(frozen=True)
class MemoryLimit:
    """Limit of this process's memory in bytes. name: for messages. kind: "memory" for its own data, "address space" for
    all that it maps and reserves. hint: what to change."""

    name: str
    kind: str
    size: int
    hint: str


def memory_limits(root: Path = ROOT) -> list[MemoryLimit]:
    """Return all limits: first the machine's memory, then those of control groups and of the process itself."""
    size = physical_memory() + _swap(root)
    machine = MemoryLimit("this machine's memory and swap", MEMORY, size, "use a machine with more memory")
    return [machine, *_group_limits(root), *_process_limits()]


def physical_memory() -> int:
    """Return the bytes of the machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _swap(root: Path) -> int:
    words = _read(root / "proc/meminfo").partition("SwapTotal:")[2].split()
    return int(words[0]) * 1024 if words else 0


def _group_limits(root: Path) -> Iterator[MemoryLimit]:
    for group in _groups(root, "memory"):
        text = _read(group / "memory.max") or _read(group / "memory.limit_in_bytes")  # version 2: a number, or max
        if text.strip().isdigit() and int(text) < _NO_LIMIT:
            name = f"the limit of the control group {PurePosixPath('/') / group.relative_to(root / _GROUPS)}"
            yield MemoryLimit(name, MEMORY, int(text), "give the container or the service more memory")


def _process_limits() -> Iterator[MemoryLimit]:
    try:
        import resource
    except ImportError:  # not on Windows
        return
    for command, number, kind in (
        ("ulimit -v", resource.RLIMIT_AS, ADDRESS_SPACE),
        ("ulimit -d", resource.RLIMIT_DATA, MEMORY),
    ):
        soft, _ = resource.getrlimit(number)
        if soft != resource.RLIM_INFINITY:
            yield MemoryLimit(f"`{command}`", kind, soft, f"raise it: `{command} unlimited`, in the same shell")


MEMORY, ADDRESS_SPACE = "memory", "address space"

_NO_LIMIT = 1 << 60  # bytes: version 1 of control groups writes about 2 ** 63 for none


def physical_cores(root: Path = ROOT) -> int:
    """Return the number of physical cores, without hyper-threads; of processors if the kernel does not report cores."""
    siblings = {file.read_text() for file in (root / _TOPOLOGY).glob(f"cpu[0-9]*/{_SIBLINGS}")}
    return len(siblings) or os.cpu_count() or 1


def available_cores(root: Path = ROOT) -> int:
    """Return the number of cores that this process may use, at least one: by its affinity mask and its quota."""
    affinity = getattr(os, "sched_getaffinity", None)
    processors = affinity(0) if affinity else range(os.cpu_count() or 1)
    siblings = {_read(root / _TOPOLOGY / f"cpu{number}" / _SIBLINGS) or number for number in processors}
    return max(1, min(len(siblings), math.floor(min(_quotas(root), default=len(siblings)))))


def processor(root: Path = ROOT) -> dict[str, str]:
    """Return the processor's architecture, name and instruction sets, the last two if the kernel reports them."""
    found = _cpuinfo(root)
    return {
        "architecture": platform.machine(),
        "name": found.get("model name", ""),
        "instructions": " ".join(sorted(found.get("flags", found.get("Features", "")).split())),
    }


def processor_title() -> str:
    """Return the processor's name with family and model, since generations share a name: `AMD EPYC (family 26, model
    2)`. The architecture alone where the kernel reports no name."""
    found = _cpuinfo(ROOT)
    name = found.get("model name") or platform.machine()
    return f"{name} (family {found['cpu family']}, model {found['model']})" if "cpu family" in found else name


def _cpuinfo(root: Path) -> dict[str, str]:
    lines = [line.partition(":") for line in _read(root / "proc/cpuinfo").splitlines()]
    return {key.strip(): value.strip() for key, _, value in reversed(lines)}  # the first processor's stay


_TOPOLOGY, _SIBLINGS, _GROUPS = "sys/devices/system/cpu", "topology/thread_siblings_list", "sys/fs/cgroup"


def _quotas(root: Path) -> Iterator[float]:
    """Yield the number of processors that each control group around this process grants."""
    return (quota for group in _groups(root, "cpu") if (quota := _quota(group)) is not None)


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of the control groups around this process, for both versions of control groups. Some do not
    exist."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        group = PurePosixPath(path.lstrip("/"))
        for mount in {controllers, controller} if controllers else ("", "unified"):
            for each in (group, *group.parents):
                yield root / _GROUPS / mount / each


def _quota(group: Path) -> float | None:
    """Return the quota of a control group, or None if it does not exist or has no limit."""
    words = _read(group / "cpu.max").split()  # version 2: "200000 100000", or "max 100000"
    if not words:
        words = [_read(group / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]  # -1: no limit
    if len(words) != 2 or not all(word.isdigit() for word in words):
        return None
    return int(words[0]) / int(words[1])


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
