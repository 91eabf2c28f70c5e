"""What the system tells: cores that a process may use, the processor, memory."""

import mmap
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from speccompile.machine import system
from speccompile.runtime.devices.engine import process_memory


def write(root: Path, name: str, text: str) -> None:
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def cfs(folder: str, quota: int) -> dict[str, str]:
    """Return the files of a control group of version 1."""
    return {f"{folder}/cpu.cfs_quota_us": f"{quota}\n", f"{folder}/cpu.cfs_period_us": "100\n"}


@pytest.fixture
def eight(tmp_path, monkeypatch) -> Path:
    """Return the root of a machine with four cores of two hyper-threads each, all of them for this process."""
    for number in range(8):
        core = number % 4
        write(tmp_path, f"sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list", f"{core},{core + 4}\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    return tmp_path


def test_hyper_threads_are_one_core(eight):
    assert system.physical_cores(eight) == system.available_cores(eight) == 4


def test_cores_are_those_of_the_affinity_mask(eight, monkeypatch):
    for mask, cores in (({0, 4}, 1), ({0, 1, 2}, 3), ({3, 7, 5}, 2)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda process, mask=mask: mask, raising=False)
        assert system.available_cores(eight) == cores
        assert system.physical_cores(eight) == 4


@pytest.mark.parametrize(
    ("membership", "files", "cores"),
    [
        ("0::/\n", {}, 4),
        ("0::/\n", {"cpu.max": "max 100000\n"}, 4),
        ("0::/\n", {"cpu.max": "200000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "250000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "50000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "1600000 100000\n"}, 4),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "300000 100000\n"}, 3),
        ("0::/a/b\n", {"a/b/cpu.max": "100000 100000\n", "a/cpu.max": "300000 100000\n"}, 1),
        ("1:cpu,cpuacct:/a\n", cfs("cpu,cpuacct/a", 300), 3),
        # in a container the path is the host's, and the group is mounted where the root should be
        ("4:memory:/x\n1:cpu:/docker/a\n", cfs("cpu", 200), 2),
        ("1:cpu:/\n", cfs("cpu", -1), 4),
        ("1:name=systemd:/\n0::/a\n", {"unified/a/cpu.max": "200000 100000\n"}, 2),
    ],
)
def test_cores_are_no_more_than_the_quota_of_the_control_groups(eight, membership, files, cores):
    write(eight, "proc/self/cgroup", membership)
    for name, text in files.items():
        write(eight, f"sys/fs/cgroup/{name}", text)
    assert system.available_cores(eight) == cores


def test_where_the_kernel_tells_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert system.physical_cores(tmp_path) == system.available_cores(tmp_path) == 6
    assert system.processor(tmp_path) == {"architecture": os.uname().machine, "name": "", "instructions": ""}


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity masks")
def test_cores_of_a_process_bound_to_one_processor():
    code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
    code += "from speccompile.machine import system; print(system.available_cores())"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "1\n"


@pytest.mark.parametrize(
    ("text", "name", "instructions"),
    [
        ("model name\t: Fast\nflags\t\t: sse avx\n\nmodel name\t: Slow\nflags\t\t: sse\n", "Fast", "avx sse"),
        ("processor\t: 0\nFeatures\t: fp asimd\n", "", "asimd fp"),
    ],
)
def test_the_processor(tmp_path, text, name, instructions):
    write(tmp_path, "proc/cpuinfo", text)
    found = system.processor(tmp_path)
    assert (found["name"], found["instructions"]) == (name, instructions)


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="this kernel does not tell")
def test_memory_is_what_the_kernel_says(tmp_path):
    (tmp_path / "file").write_bytes(bytes(30 << 20))
    before = process_memory()
    # mapped by itself: a heap may have room that an earlier test has left
    pages = mmap.mmap(-1, 20 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    own, file = np.frombuffer(pages, np.uint8), np.memmap(tmp_path / "file")
    own[:] = 1
    twice = np.memmap(tmp_path / "file")
    assert own.sum() == 20 << 20
    assert file.sum() == twice.sum() == 0
    after = process_memory()
    assert {name: (after[name] - before[name]) / (1 << 20) for name in before if name != "peak"} == {
        "resident": pytest.approx(80, abs=8),
        "anonymous": pytest.approx(20, abs=8),
        "mapped": pytest.approx(60, abs=2),
        "proportional": pytest.approx(50, abs=8),
    }
    assert after["peak"] == pytest.approx(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, rel=0.1)


def test_memory_of_a_process_that_is_not_there():
    assert system.process_sizes(2**22 + 1) == {}


@pytest.mark.parametrize(
    ("membership", "files", "sizes"),
    [
        ("0::/\n", {}, []),
        ("0::/\n", {"memory.max": "max\n"}, []),
        ("0::/\n", {"memory.max": "4294967296\n"}, [("/", 1 << 32)]),
        ("0::/a/b\n", {"a/b/memory.max": "max\n", "a/memory.max": "1024\n"}, [("/a", 1024)]),
        ("0::/a/b\n", {"a/b/memory.max": "512\n", "a/memory.max": "1024\n"}, [("/a/b", 512), ("/a", 1024)]),
        ("5:cpu:/x\n4:memory:/a\n", {"memory/a/memory.limit_in_bytes": "2048\n"}, [("/memory/a", 2048)]),
        # in a container the path is the host's, and the group is mounted where the root should be
        ("4:memory:/docker/a\n", {"memory/memory.limit_in_bytes": "2048\n"}, [("/memory", 2048)]),
        ("4:memory:/\n", {"memory/memory.limit_in_bytes": "9223372036854771712\n"}, []),
    ],
)
def test_memory_is_no_more_than_the_limits_of_the_control_groups(tmp_path, membership, files, sizes):
    write(tmp_path, "proc/self/cgroup", membership)
    write(tmp_path, "proc/meminfo", "MemTotal: 8 kB\nSwapTotal:  4 kB\n")
    for name, text in files.items():
        write(tmp_path, f"sys/fs/cgroup/{name}", text)
    machine, *groups = (each for each in system.memory_limits(tmp_path) if "ulimit" not in each.name)
    assert (machine.kind, machine.size) == ("memory", system.physical_memory() + 4096)
    assert [(each.name, each.kind, each.size) for each in groups] == [
        (f"the limit of the control group {name}", "memory", size) for name, size in sizes
    ]


@pytest.mark.parametrize(("option", "kind"), [("v", "address space"), ("d", "memory")])
def test_memory_is_no_more_than_the_limits_of_the_process(option, kind):
    code = (
        "from speccompile.machine.system import memory_limits; x = memory_limits()[-1]; print(x.name, x.kind, x.size)"
    )
    command = f"ulimit -S{option} 2000000 && '{sys.executable}' -c '{code}'"
    found = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert found.stdout == f"`ulimit -{option}` {kind} {2_000_000 * 1024}\n"
