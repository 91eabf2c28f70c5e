"""The process that builds one engine: `python -m speccompile.compiler.engines.worker JOB RESULT`.

JOB is a JSON file: {"onnx", "output", "graph", "settings", "limits", "parent": process id}. RESULT is written as one:
{"report": ..} or {"refusal": .., "hint": ..} or {"errno": .., "reason": ..}. stderr has messages.
"""

import ctypes
import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from speccompile.compiler.engines import flavour
from speccompile.compiler.engines.limits import Limits
from speccompile.compiler.engines.settings import Settings
from speccompile.compiler.engines.tensorrt import build_engine
from speccompile.contract import Graph
from speccompile.errors import EngineError

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Run the job of the command line."""
    job, result = map(Path, sys.argv[1:])
    data = json.loads(job.read_bytes())
    _exit_with_parent(data["parent"])
    _prefer_for_oom_kill()
    result.write_text(json.dumps(_work(data)))


def _work(job: dict[str, Any]) -> dict[str, Any]:
    settings, graph, output = Settings.from_json(job["settings"]), Graph.from_json(job["graph"]), Path(job["output"])
    onnx, limits = Path(job["onnx"]), Limits(**job["limits"])
    try:
        return {"report": build_engine(flavour.load(settings.backend), onnx, graph, settings, output, limits)}
    except EngineError as error:
        return {"refusal": str(error), "hint": error.hint}
    except OSError as error:
        output.unlink(missing_ok=True)  # frees space for the result on a full disk
        return {"errno": error.errno, "reason": error.strerror}


def _exit_with_parent(parent: int) -> None:
    """Let the kernel end this process when its parent ends, in any way."""
    call = getattr(ctypes.CDLL(None), "prctl", None)
    if call is not None:
        call(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the call
        os.kill(os.getpid(), signal.SIGKILL)


def _prefer_for_oom_kill() -> None:
    """Raise this process's oom_score_adj: the OOM killer then ends the builder, and its parent reports the error."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


if __name__ == "__main__":
    main()
