"""A build in a separate process, within limits: a crash of the builder does not end this process."""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from speccompile.compiler.engines.failures import BuilderExit, to_engine_error
from speccompile.compiler.engines.limits import Limits
from speccompile.compiler.engines.memory import read_memory
from speccompile.compiler.engines.settings import Settings
from speccompile.contract import Graph

_POLL_SECONDS = 0.05
_KEPT_LINES = 400


def build(onnx: Path, graph: Graph, settings: Settings, output: Path, limits: Limits) -> dict[str, Any]:
    """Build the engine of one graph into `output`, which appears whole or not at all. Return the builder's report.

    Raise EngineError for everything that prevents an engine: a refusal, a crash, a limit, a full disk.
    """
    try:
        # In the output's folder, so that the engine is moved and not copied.
        with tempfile.TemporaryDirectory(prefix=f".{output.name}.", dir=output.parent) as work:
            plan = Path(work).resolve() / "plan"
            ending = _run(_write_job(onnx, graph, settings, plan, limits), limits)
            if ending.report is not None:
                plan.replace(output)
    except OSError as error:
        ending = BuilderExit(0, None, [], errno=error.errno, reason=error.strerror)
    if ending.report is None:
        raise to_engine_error(ending, graph.name, settings, limits)
    return ending.report


def _write_job(onnx: Path, graph: Graph, settings: Settings, plan: Path, limits: Limits) -> Path:
    data = {
        "onnx": str(onnx.resolve()),
        "output": str(plan),
        "graph": graph.to_json(),
        "settings": settings.to_json(),
        "limits": asdict(limits),
        "parent": os.getpid(),
    }
    job = plan.with_name("job.json")
    job.write_text(json.dumps(data))
    return job


def _run(job: Path, limits: Limits) -> BuilderExit:
    result = job.with_name("result.json")
    lines: deque[str] = deque(maxlen=_KEPT_LINES)
    # -P: a file of the working directory must not shadow a module. The search path is this process's own.
    command = [sys.executable, "-P", "-m", "speccompile.compiler.engines.worker", str(job), str(result)]
    with subprocess.Popen(  # noqa: S603  # our own interpreter and module
        command,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # a Ctrl-C reaches this process alone, which then ends the builder
    ) as process:
        assert process.stdout is not None
        reader = threading.Thread(target=_read, args=(process.stdout, lines), daemon=True)
        reader.start()
        try:
            limit = _watch(process, limits)
        finally:
            process.kill()
            process.wait()
            reader.join()
    answer = json.loads(result.read_bytes()) if process.returncode == 0 else {}
    return BuilderExit(process.returncode, limit, list(lines), **answer)


def _read(stream: IO[bytes], lines: "deque[str]") -> None:
    for line in stream:
        lines.append(line.decode(errors="replace").rstrip())


def _watch(process: "subprocess.Popen[bytes]", limits: Limits) -> str | None:
    """Wait for the process. Return the limit that it exceeded, "seconds" or "memory"; None if it ended by itself.

    Its memory is watched rather than limited with RLIMIT_AS or RLIMIT_DATA: with CUDA it reserves many times the
    addresses that it uses, and a builder without memory crashes without a message.
    """
    end = time.monotonic() + limits.seconds
    while True:
        try:
            process.wait(_POLL_SECONDS)
        except subprocess.TimeoutExpired:
            if read_memory(process.pid).own > limits.memory:
                return "memory"
            if time.monotonic() > end:
                return "seconds"
        else:
            return None
