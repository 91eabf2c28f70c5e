"""Before a build: find the nodes of a lowered graph that TensorRT's parser refuses, by polygraphy's `inspect
capability`.

It maps the graph's weights and reads none of them, so it takes half a second for every model.
"""

import json
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import TimeoutExpired
from typing import NoReturn

from speccompile.compiler.diagnose.children import run_python
from speccompile.errors import EngineError

FLAVOUR = "POLYGRAPHY_USE_TENSORRT_RTX"
"""The variable by which polygraphy chooses TensorRT-RTX, for a whole process."""

_SECONDS = 600
_SHOWN = 8


@dataclass(frozen=True)
class Finding:
    """A node that the parser refuses: its operator, its name, and the reason. A file that cannot be read has neither
    name."""

    op: str
    name: str
    reason: str

    @property
    def where(self) -> str:
        """Return its name in messages."""
        return f"node {self.name!r} ({self.op})" if self.op else "the file"


@dataclass(frozen=True)
class Capability:
    """The parser's refusals; none if it accepts the whole graph. not_checked: why the parser did not run, or ""."""

    findings: tuple[Finding, ...]
    not_checked: str


def check_capability(onnx: Path, backend: str) -> Capability:
    """Ask the parser of `backend`, "tensorrt_rtx" or "tensorrt", about a graph, in a separate process.

    The parser checks every node by itself, and then translates the graph up to the first node that it cannot; a node
    that only fails in translation is found if no other is refused before. Raise EngineError if the parser crashes or
    does not end.
    """
    variables = {FLAVOUR: "1" if backend == "tensorrt_rtx" else "0"}
    where = f"{backend}'s parser, asked about {onnx.name},"
    try:
        ended = run_python(
            "-m", "speccompile.compiler.diagnose.parser", backend, str(onnx), seconds=_SECONDS, environment=variables
        )
    except TimeoutExpired as error:
        raise EngineError(f"{where} did not answer in {_SECONDS} seconds", hint=_REPORT) from error
    if ended.returncode != 0:
        raise EngineError(f"{where} {_ending(ended.returncode)}{_last_lines(ended.stderr)}", hint=_REPORT)
    answer = json.loads(ended.stdout)
    return Capability(tuple(Finding(**row) for row in answer["findings"]), answer["not_checked"])


_REPORT = "this is a fault of TensorRT: report it with the graph, which `speccompile build --dump-graphs` keeps"


def raise_unsupported(findings: Sequence[Finding], graph: str, engine: str) -> NoReturn:
    """Raise EngineError naming engine, graph and every refused node, with its operator and the reason."""
    rows = [f"  {each.where}: {each.reason}" for each in findings[:_SHOWN]]
    if len(findings) > _SHOWN:
        rows.append(f"  and {len(findings) - _SHOWN} more")
    raise EngineError(
        "\n".join([f"engine {engine!r}, graph {graph!r}: TensorRT's parser refuses {_count(findings)}:", *rows]),
        hint="use the backend onnxruntime for this engine; `speccompile build --reduce` leaves a small graph to report",
    )


def _count(findings: Sequence[Finding]) -> str:
    return "a node" if len(findings) == 1 else f"{len(findings)} nodes"


def _ending(code: int) -> str:
    return f"crashed with {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _last_lines(text: str) -> str:
    return "".join(f"\n  {line}" for line in text.splitlines()[-3:])
