"""What the system tells of this process: its memory, and the processors that it may use."""

import ctypes
import math
import os
import platform
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT = Path("/")


def process_sizes(process_id: int | None = None) -> dict[str, int]:
    """Sizes in bytes by the names that proc(5) gives them, as RssAnon; by default of this process.

    None for a process that has ended, and where the kernel does not tell. Not `resource.getrusage`: its peak begins
    with that of the parent.
    """
    try:
        lines = Path(f"/proc/{process_id or 'self'}/status").read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.split(":") for line in lines if line.endswith(" kB"))
    return {key: int(value.split()[0]) * 1024 for key, value in pairs}


def proportional_size() -> int | None:
    """Bytes of this process in memory, of a page that is mapped several times its part; None where nobody tells."""
    words = _read(Path("/proc/self/smaps_rollup")).split()
    return int(words[words.index("Pss:") + 1]) * 1024 if "Pss:" in words else None


def trim_heap() -> None:
    """Return free heap to the system, where the C library can: glibc keeps much of what large buffers leave."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def physical_cores(root: Path = ROOT) -> int:
    """Cores of the machine, each counted once whatever its hyper-threads; processors where the kernel does not say."""
    siblings = {file.read_text() for file in (root / _TOPOLOGY).glob(f"cpu[0-9]*/{_SIBLINGS}")}
    return len(siblings) or os.cpu_count() or 1


def available_cores(root: Path = ROOT) -> int:
    """Cores that this process may use, at least one: those of its affinity mask, or fewer as its quota says."""
    affinity = getattr(os, "sched_getaffinity", None)
    processors = affinity(0) if affinity else range(os.cpu_count() or 1)
    siblings = {_read(root / _TOPOLOGY / f"cpu{number}" / _SIBLINGS) or number for number in processors}
    return max(1, min(len(siblings), math.floor(min(_quotas(root), default=len(siblings)))))


def processor(root: Path = ROOT) -> dict[str, str]:
    """Its architecture, name and instruction sets, the latter two where the kernel tells."""
    lines = [line.partition(":") for line in _read(root / "proc/cpuinfo").splitlines()]
    found = {key.strip(): value.strip() for key, _, value in reversed(lines)}  # the first processor's stay
    return {
        "architecture": platform.machine(),
        "name": found.get("model name", ""),
        "instructions": " ".join(sorted(found.get("flags", found.get("Features", "")).split())),
    }


_TOPOLOGY, _SIBLINGS = "sys/devices/system/cpu", "topology/thread_siblings_list"


def _quotas(root: Path) -> Iterator[float]:
    """Processors that each control group around this process grants, of both versions of control groups."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        group = PurePosixPath(path.lstrip("/"))
        for mount in {controllers, "cpu"} if controllers else ("", "unified"):
            for each in (group, *group.parents):
                quota = _quota(root / "sys/fs/cgroup" / mount / each)
                if quota is not None:
                    yield quota


def _quota(group: Path) -> float | None:
    """None for a group that is not there or has no limit."""
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
