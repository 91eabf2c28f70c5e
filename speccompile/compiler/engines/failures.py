"""The builder process's ending, and the error that reports it."""

import errno
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from speccompile.compiler.engines.limits import SECONDS, Limits
from speccompile.compiler.engines.memory_estimate import memory_hint
from speccompile.compiler.engines.messages import PARSING, last_phase
from speccompile.compiler.engines.settings import Settings
from speccompile.errors import EngineError
from speccompile.machine.system import ADDRESS_SPACE, memory_limits

_SHOWN_LINES = 6
_LONGEST_LINE = 400
_DISK_IS_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True)
class BuilderExit:
    """Ending of the builder process. code: exit code, negative for a signal. limit: "seconds" or "memory" if it
    exceeded one. lines: its output.

    Then the worker's result, if it gave one: report; refusal and hint; errno and reason.
    """

    code: int
    limit: str | None
    lines: list[str]
    report: dict[str, Any] | None = None
    refusal: str | None = None
    hint: str | None = None
    errno: int | None = None
    reason: str | None = None


def to_engine_error(ending: BuilderExit, graph: str, settings: Settings, limits: Limits) -> EngineError:
    """Return the error for a build without an engine: graph, target, what happened, and the builder's last messages."""
    what, hint = _explain(ending, limits)
    if ending.code < 0 or ending.refusal is not None:
        hint = "; ".join(filter(None, [*_short_of_addresses(), hint]))
    message = f"graph {graph!r} ({settings.backend}, {settings.describe()}): {what}"
    last = [line[:_LONGEST_LINE] for line in ending.lines if PARSING not in line][-_SHOWN_LINES:]
    return EngineError("\n  ".join([message, *(["the builder's last messages:"] if last else []), *last]), hint=hint)


def _short_of_addresses() -> Iterator[str]:
    """Yield a hint about limited address space, in which TensorRT crashes, refuses or finds no file, without a
    reason."""
    for limit in memory_limits():
        if limit.kind == ADDRESS_SPACE:
            size = f"{limit.size / 1e9:.3g} GB"
            yield f"{limit.name} leaves the builder {size} of addresses, which may be too little ({limit.hint})"


def _explain(ending: BuilderExit, limits: Limits) -> tuple[str, str | None]:
    """Return what happened, and what to change."""
    if ending.refusal is not None:
        return ending.refusal, ending.hint
    if ending.reason is not None:
        if ending.errno in _DISK_IS_FULL:
            return f"the engine could not be written: {ending.reason}", "free some disk space, or choose another output"
        return f"the engine could not be built: {ending.reason}", "check the permissions of the output folder"
    where = f"; {last_phase(ending.lines)}"
    if ending.limit == "seconds":
        return f"the builder was not done after {limits.seconds:g} seconds{where}", f"give it more with ${SECONDS}"
    if ending.limit == "memory":
        used = f"the builder took more than {limits.memory / 1e9:.3g} GB of memory ({limits.memory_source}){where}"
        return used, memory_hint(limits)
    if ending.code == -signal.SIGKILL:
        hint = "most likely the system ran out of memory: build with less beside it, or on a larger machine"
        return f"the builder was killed{where}", hint
    if ending.code < 0:
        return f"the builder crashed with {signal.Signals(-ending.code).name}{where}", (
            "this is a fault of TensorRT: another precision may avoid it, and `speccompile build --dump-graphs` keeps "
            "the graph for a report"
        )
    return f"the builder's process ended with exit code {ending.code}{where}", "report it with the lines above"
