"""Times of products beside their bounds, as a table."""

import json
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

from scripts.performance.program import PerfError
from speccompile.machine.system import processor_title


@dataclass(frozen=True)
class Measured:
    """A product of `window` rows with a weight of 2048 by 2048 numbers, in memory. Seconds: medians, one thread."""

    precision: str
    window: int
    seconds: float
    memory_seconds: float
    """Reading the weight, at the bandwidth that one core measured just before."""
    product_seconds: float
    """Its products, at the rate of the path's instruction from registers alone."""

    @property
    def of_bound(self) -> float:
        return self.seconds / max(self.memory_seconds, self.product_seconds)


@dataclass(frozen=True)
class Roofline:
    """Times of one path of the kernels on this processor."""

    processor: str
    path: str
    bytes_per_second: float
    measured: list[Measured]


def measure_roofline(program: Path, path: str, seconds: float) -> Roofline:
    """Measure every precision and window for `seconds` each. Raise PerfError for a path that cannot run here."""
    done = subprocess.run([program, "FOR_TIMES", path, str(seconds)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise PerfError(done.stderr.strip())
    head, *rows = (json.loads(line) for line in done.stdout.splitlines())
    return Roofline(processor_title(), head["path"], head["bytes_per_second"], [Measured(**row) for row in rows])


def table(roofline: Roofline) -> str:
    """Return a table: of each precision and window the time, over that of one row, and over its bound."""
    first = {each.precision: each.seconds for each in roofline.measured if each.window == 1}
    bandwidth = f"{roofline.bytes_per_second / 1e9:.1f} GB/s read from memory"
    lines = [
        f"{roofline.processor}, {roofline.path}, one thread, {bandwidth}",
        "",
        "| precision | window | time, us | over one row | over its bound | bound by |",
        "|---|---|---|---|---|---|",
    ]
    for each in roofline.measured:
        bound = "memory" if each.memory_seconds > each.product_seconds else "products"
        times = f"{1e6 * each.seconds:.1f} | {each.seconds / first[each.precision]:.2f} | {each.of_bound:.2f}"
        lines.append(f"| {each.precision} | {each.window} | {times} | {bound} |")
    return "\n".join(lines)


def as_json(roofline: Roofline) -> str:
    return json.dumps(asdict(roofline), indent=2)
