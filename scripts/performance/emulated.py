"""Counts of the kernels' instructions on ARM, which qemu emulates here.

Nothing is timed: they are told beside what a processor could do at best. Only products are counted, not what prepares
their rows of x once, whatever the weight's columns.
"""

import json
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scripts.performance.instructions import Count, Key
from scripts.performance.program import CROSS, PerfError

PATH = "neon_dot"
"""The path of the kernels that is counted."""

DISPATCHED, SIMD, LOADS = 4, 2, 2
"""Instructions, of them on vectors and loads, that Neoverse N1 and Cortex-A76 begin in a cycle at most, by Arm's
software optimization guides of both."""

_CASE_BEGINS, _PREPARES = "measured_call(", re.compile(rf"::{PATH}::(quantize|pack|largest_bits)")
_LOADS = re.compile(r"ld|prfm")
_VECTORS = re.compile(r"\b[vqds]\d+\b")


@dataclass(frozen=True)
class Emulated:
    """Instructions of one product with a weight of so many bytes. vectors: those that compute with vectors; loads:
    those that read memory, or ask for it; dots: dot products of bytes."""

    precision: str
    window: int
    bytes: int
    instructions: int
    vectors: int
    loads: int
    dots: int

    @property
    def key(self) -> Key:
        """Return what names it in the history of counts."""
        return PATH, self.precision, self.window

    @property
    def count(self) -> Count:
        """Return what the history says of it."""
        return Count(self.instructions, self.bytes)

    @property
    def least_cycles(self) -> float:
        """Return the cycles that the processor takes at least, whatever memory does."""
        return max(self.instructions / DISPATCHED, self.vectors / SIMD, self.loads / LOADS)


def count_emulated(program: Path) -> list[Emulated]:
    """Run every case under qemu, an instruction at a time. Raise PerfError where that is missing or fails."""
    if shutil.which("qemu-aarch64") is None:
        raise PerfError("found no qemu-aarch64; hint: apt install qemu-user g++-aarch64-linux-gnu")
    begin, ranges = _places(program)
    line = ["qemu-aarch64", "-cpu", "neoverse-n1", "-singlestep", "-d", "exec,nochain", "-dfilter", ",".join(ranges)]
    with subprocess.Popen(
        [*line, str(program), "FOR_COUNTS", PATH], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None, "it is a pipe"
        assert running.stderr is not None, "it is a pipe"
        executed: list[Counter[int]] = []
        for address in _addresses(running.stderr):
            if address == begin:
                executed.append(Counter())
            executed[-1][address] += 1
        cases = [json.loads(each) for each in running.stdout.read().splitlines()]
    if running.returncode or len(cases) != len(executed):
        raise PerfError(f"qemu-aarch64 ended with {running.returncode} after {len(executed)} of {len(cases)} products")
    kinds = _kinds(program)
    return [_emulated(case, counts, kinds) for case, counts in zip(cases, executed, strict=True)]


def emulated_table(found: list[Emulated]) -> str:
    """Return a table: instructions of each product, cycles that they take at least, and the bytes of the weight that
    memory must bring in each of those for the instructions to be the bound."""
    first = {each.precision: each.least_cycles for each in found if each.window == 1}
    lines = [
        f"{PATH}, counted under qemu; a processor that begins {DISPATCHED} instructions, {SIMD} on vectors and {LOADS} "
        "loads in a cycle",
        "",
        "| precision | window | instructions | on vectors | loads | cycles at least | over one row | bytes a cycle |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for each in found:
        cycles, counts = each.least_cycles, (each.instructions, each.vectors, each.loads)
        least = f"{cycles:.0f} | {cycles / first[each.precision]:.2f} | {each.bytes / cycles:.1f}"
        lines.append(f"| {each.precision} | {each.window} | {' | '.join(map(str, counts))} | {least} |")
    return "\n".join(lines)


def _emulated(case: dict[str, object], counts: Counter[int], kinds: dict[int, str]) -> Emulated:
    of = {kind: sum(n for address, n in counts.items() if kind in kinds[address]) for kind in ("v", "l", "d")}
    precision, window, size = str(case["precision"]), int(str(case["window"])), int(str(case["bytes"]))
    return Emulated(precision, window, size, sum(counts.values()), of["v"], of["l"], of["d"])


def _addresses(log: Iterator[str]) -> Iterator[int]:
    """Yield the address of every executed instruction: `Trace 0: HOST [FLAGS/ADDRESS/..] SYMBOL`."""
    for line in log:
        if line.startswith("Trace"):
            yield int(line.split("/", 2)[1], 16)


def _places(program: Path) -> tuple[int, list[str]]:
    """Return the address where a case begins, and the ranges of addresses of that function and of the path's."""
    begin, ranges = 0, list[str]()
    for line in _tool("nm", "-C", "-n", "-S", "--defined-only", str(program)).splitlines():
        found = re.fullmatch(r"([0-9a-f]+) ([0-9a-f]+) [tTwW] (.*)", line)
        if found and _CASE_BEGINS in found[3]:
            begin = int(found[1], 16)
        elif not (found and f"::{PATH}::" in found[3]) or _PREPARES.search(found[3]):
            continue
        ranges.append(f"0x{found[1]}+0x{found[2]}")
    if not begin or len(ranges) < 2:
        raise PerfError(f"{program}: found no function that begins a case, or none of the path {PATH}")
    return begin, ranges


def _kinds(program: Path) -> dict[int, str]:
    """Return what instructions are, by address: `v` on vectors, `l` a load, `d` a dot product."""
    kinds = {}
    for line in _tool("objdump", "-d", "--no-show-raw-insn", str(program)).splitlines():
        found = re.match(r"\s*([0-9a-f]+):\s+(\S+)\s*([^/<]*)", line)
        if found:
            is_load, is_dot = bool(_LOADS.match(found[2])), found[2] in ("sdot", "udot")
            is_store = found[2].startswith("st")
            is_vector = not is_load and not is_store and bool(_VECTORS.search(found[3]))
            kinds[int(found[1], 16)] = "v" * is_vector + "l" * is_load + "d" * is_dot
    return kinds


def _tool(name: str, *arguments: str) -> str:
    return subprocess.run([f"{CROSS}{name}", *arguments], capture_output=True, text=True, check=True).stdout
