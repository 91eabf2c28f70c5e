"""Run a job in a separate process through JSON files: its memory is separate, and its crash does not end this one."""

import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from speccompile import errors
from speccompile.bundle.folders import write_atomically
from speccompile.errors import EngineError, SpeccompileError
from speccompile.progress import LOGGER


def run_apart(module: str, job: Mapping[str, Any], about: str) -> Any:
    """Run `serve` of a module in a new process with this log level, and return its result.

    job and result: plain JSON values. about: description of the job, for messages. Raise the SpeccompileError of the
    job, and EngineError if the process ended without an answer.
    """
    with tempfile.TemporaryDirectory(prefix="speccompile-compare-") as work:
        asked, answered = Path(work) / "job.json", Path(work) / "answer.json"
        asked.write_text(json.dumps({"level": LOGGER.getEffectiveLevel(), "job": job}), encoding="utf-8")
        code = _run([module, str(asked), str(answered)])
        if not answered.is_file():
            raise EngineError(
                f"{about}: the process {_ending(code)}, expected an answer",
                hint="its last lines on stderr say more; where memory ran out, leave this way out with --ways",
            )
        answer = json.loads(answered.read_bytes())
    if "error" in answer:
        raise _error(**answer["error"])
    return answer["result"]


def serve(act: Callable[[dict[str, Any]], Any]) -> None:
    """Run the job file of the command line in the new process, and write its result or SpeccompileError."""
    asked, answered = map(Path, sys.argv[1:])
    data = json.loads(asked.read_bytes())
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("  %(message)s"))
    LOGGER.addHandler(handler)
    LOGGER.setLevel(data["level"])
    answer: dict[str, Any]
    try:
        answer = {"result": act(data["job"])}
    except SpeccompileError as error:
        answer = {"error": {"kind": type(error).__name__, "message": str(error), "hint": error.hint}}
    write_atomically(answered, json.dumps(answer).encode())


def _run(arguments: list[str]) -> int:
    """Run one of our modules to its end and return its exit code. An interrupted wait kills the process."""
    with subprocess.Popen(  # noqa: S603  # our own interpreter and module
        # -P: a file of the working directory must not shadow a module.
        [sys.executable, "-P", "-m", *arguments],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr.fileno() if _is_file(sys.stderr) else subprocess.DEVNULL,  # stdout is for our data alone
        start_new_session=True,  # Ctrl-C reaches only the parent, which then kills the child
    ) as process:
        try:
            return process.wait()
        finally:
            process.kill()


def _is_file(stream: Any) -> bool:
    """Return whether the stream has a file descriptor."""
    try:
        stream.fileno()
    except (OSError, ValueError):
        return False
    return True


def _ending(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _error(kind: str, message: str, hint: str | None) -> SpeccompileError:
    found: type[SpeccompileError] = getattr(errors, kind)
    return found(message, hint=hint)
