"""Work in a process of its own, by files of JSON: what it holds is its own, and however it ends, this one goes on."""

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
    """What `serve` answers in a process that runs this module, and logs as this one does.

    job, and the answer: plain JSON values. about: what is done, for people. Raises what was raised there, and
    EngineError for a process that ended otherwise.
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
    """The other side: do what the files in the command line say, and answer with the result or with what it raised."""
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
    """Run a module of ours to its end; its exit code. Whatever ends the wait ends it, too."""
    with subprocess.Popen(  # noqa: S603  # our own interpreter and module
        # -P: a file of the working directory must not take the place of a module.
        [sys.executable, "-P", "-m", *arguments],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr.fileno() if _is_file(sys.stderr) else subprocess.DEVNULL,  # stdout is for our data alone
        start_new_session=True,  # a Ctrl-C reaches this process alone, which then ends the other
    ) as process:
        try:
            return process.wait()
        finally:
            process.kill()


def _is_file(stream: Any) -> bool:
    """Whether it is one of the system's files."""
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
