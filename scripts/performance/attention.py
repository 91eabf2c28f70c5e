"""Times of attention over float and quantized caches, in turns, as a table."""

import json
import subprocess
from dataclasses import astuple, dataclass
from pathlib import Path

from scripts.performance.instructions import PATHS, run_counted
from scripts.performance.program import PerfError

FLOAT = "float"
COUNTED = 1024
"""Committed rows of a run whose instructions are counted."""


@dataclass(frozen=True)
class Shape:
    """One attention layer: `tokens` of a window over `context` committed rows of `groups` key and value heads."""

    context: int
    tokens: int
    heads: int
    groups: int
    width: int


@dataclass(frozen=True)
class Measured:
    """Cost of a layer with one dtype of caches. instructions: of a query and a row, with its share of decoding."""

    cache: str
    seconds: float
    bytes: int
    instructions: float


def measure_attention(program: Path, path: str, shape: Shape, seconds: float) -> list[Measured]:
    """Measure each kind of cache in turns for `seconds` together, the kinds of float caches first. Raises PerfError for
    a path that cannot run here."""
    timed = _run(program, path, shape, seconds)
    small = Shape(COUNTED, *astuple(shape)[1:])
    counts = run_counted(_command(program, path if path in PATHS else PATHS[0], small, 0))
    queries = small.context * small.tokens * small.heads
    return [
        Measured(case["cache"], case["seconds"], case["bytes"], counted / queries)
        for case, (_, counted) in zip(timed, counts, strict=True)
    ]


def attention_table(measured: dict[Shape, list[Measured]]) -> str:
    """Return a table: of each shape and dtype the time, how many times sooner than with float caches, bytes, and the
    instructions of a query and row."""
    lines = [
        "| heads | context | window | caches | time, ms | beside float | MB of a layer | instructions |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for shape, kinds in measured.items():
        least = next(each.seconds for each in kinds if each.cache == FLOAT)
        for each in kinds:
            cells = (
                f"{shape.heads}, {shape.groups}", shape.context, shape.tokens, each.cache, f"{1e3 * each.seconds:.2f}",
                f"{least / each.seconds:.2f}", f"{each.bytes / 1e6:.1f}", f"{each.instructions:.0f}",
            )  # fmt: skip
            lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def _command(program: Path, path: str, shape: Shape, seconds: float) -> list[str]:
    return [str(program), path, *map(str, astuple(shape)), str(seconds)]


def _run(program: Path, path: str, shape: Shape, seconds: float) -> list[dict[str, str | float | int]]:
    command = _command(program, path, shape, seconds)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PerfError(done.stderr.strip())
    return [json.loads(line) for line in done.stdout.splitlines()]
