"""Instruction counts of the kernels by valgrind. They depend on the compiler and the kernel path alone."""

import json
import re
import shutil
import subprocess
import tempfile
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scripts.performance.program import HERE, PerfError

HISTORY = HERE / "instructions.toml"
TOLERANCE = 0.08
# Two patterns of one function: callgrind keeps only one option for each pattern.
COLLECTED, DUMPED = "*measured_call*", "(anonymous namespace)::measured_call*"
PATHS = ("avx2", "scalar")
"""Paths whose instructions valgrind knows."""

Key = tuple[str, str, int]
"""Path, precision and window."""


@dataclass(frozen=True)
class Count:
    """Instructions of one product, and bytes of its weight."""

    instructions: int
    bytes: int


@dataclass(frozen=True)
class Grown:
    """A count that is larger than the tolerance allows, or has no predecessor."""

    key: Key
    before: Count | None
    now: Count

    def __str__(self) -> str:
        path, precision, window = self.key
        name = f"{precision} on {path}, a window of {window}"
        if self.before is None:
            return f"{name}: {self.now.instructions} instructions, nothing known of before"
        return (
            f"{name}: {self.now.instructions} instructions and {self.now.bytes} bytes, "
            f"before {self.before.instructions} and {self.before.bytes}"
        )


def count_instructions(program: Path) -> dict[Key, Count]:
    """Run every case under callgrind. Raises PerfError where that is missing or fails."""
    return {
        (path, case["precision"], case["window"]): Count(instructions, case["bytes"])
        for path in PATHS
        for case, instructions in run_counted([str(program), "FOR_COUNTS", path])
    }


def run_counted(command: list[str]) -> list[tuple[dict[str, Any], int]]:
    """Run a program under callgrind. Return each line of JSON that it prints, and the instructions of the call of
    `measured_call` with the same number. Raises PerfError where callgrind is missing or counts nothing."""
    if shutil.which("valgrind") is None:
        raise PerfError("found no valgrind; hint: apt install valgrind")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        options = [f"--toggle-collect={COLLECTED}", f"--dump-after={DUMPED}", f"--callgrind-out-file={out}"]
        done = subprocess.run(
            ["valgrind", "--tool=callgrind", *options, *command], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise PerfError(f"valgrind ended with {done.returncode}: {done.stderr[-2000:]}")
        counted = []
        for number, case in enumerate((json.loads(line) for line in done.stdout.splitlines()), 1):
            found = re.search(r"^totals: (\d+)", Path(f"{out}.{number}").read_text(encoding="utf-8"), re.M)
            if not found or int(found[1]) == 0:
                raise PerfError(f"callgrind counted nothing of {case}; expected a dump after every product")
            counted.append((case, int(found[1])))
        return counted


def compiler(prefix: str = "") -> str:
    """Return the compiler whose counts are compared: its name and major version. prefix: of one for another machine."""
    line = [f"{prefix}g++" if prefix else "c++", "-dumpfullversion"]
    said = subprocess.run(line, capture_output=True, text=True, check=True).stdout.strip()
    return f"{prefix}gcc-{said.partition('.')[0]}"


def read_history(name: str) -> dict[Key, Count]:
    """Return the recorded counts of a compiler, {} for an unknown one."""
    if not HISTORY.is_file():
        return {}
    rows = tomllib.loads(HISTORY.read_text(encoding="utf-8")).get(name, [])
    return {(row["path"], row["precision"], row["window"]): Count(row["instructions"], row["bytes"]) for row in rows}


def write_history(name: str, counts: dict[Key, Count]) -> None:
    """Record the counts of a compiler; those of other compilers stay."""
    others = tomllib.loads(HISTORY.read_text(encoding="utf-8")) if HISTORY.is_file() else {}
    others[name] = [
        dict(zip(("path", "precision", "window"), key, strict=True)) | asdict(count) for key, count in counts.items()
    ]
    lines = ["# Products with a weight of 512 by 64 numbers: scripts/perf instructions --write"]
    for each, rows in sorted(others.items()):
        lines += ["", f"{each} = ["]
        for row in rows:
            lines.append("  {" + ", ".join(f"{key} = {json.dumps(value)}" for key, value in row.items()) + "},")
        lines += ["]"]
    HISTORY.write_text("\n".join(lines) + "\n", encoding="utf-8")


def grown(before: dict[Key, Count], now: dict[Key, Count]) -> list[Grown]:
    """Return the counts with over 8 % more instructions or bytes than before, and those without a record."""

    def is_grown(old: Count | None, new: Count) -> bool:
        if old is None:
            return True
        return max(new.instructions / old.instructions, new.bytes / old.bytes) > 1 + TOLERANCE

    return [Grown(key, before.get(key), count) for key, count in now.items() if is_grown(before.get(key), count)]
