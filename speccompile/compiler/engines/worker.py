"""The process that builds one engine: `python -m speccompile.compiler.engines.worker JOB RESULT`.

JOB is a JSON file: {"onnx", "output", "graph", "settings", "limits", "parent": process id}. RESULT is written as one:
{"report": ..} or {"refusal": .., "hint": ..} or {"errno": .., "reason": ..}. stderr is talk.
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
    """Do the job that the command line names."""
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
        output.unlink(missing_ok=True)  # on a full disk this makes room for the result
        return {"errno": error.errno, "reason": error.strerror}


def _exit_with_parent(parent: int) -> None:
    """Have the kernel end this process when its parent ends, however it ends."""
    call = getattr(ctypes.CDLL(None), "prctl", None)
    if call is not None:
        call(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the call
        os.kill(os.getpid(), signal.SIGKILL)


def _prefer_for_oom_kill() -> None:
    """When memory runs out, the kernel ends this process rather than its parent, which can tell the user."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


if __name__ == "__main__":
    main()
