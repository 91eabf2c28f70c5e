"""native/tests/bundle.cpp, whose readers Python's tests ask, and outcomes to compare."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from speccompile.errors import BundleError, PromptError, SpeccompileError, UsageError


class Lines:
    """native/tests/bundle.cpp, which answers line by line. `ask` raises what it would raise in Python."""

    program = "bundle_lines"

    def __init__(self, build: Path) -> None:
        self._process = subprocess.Popen([build / self.program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.told: list[str] = []

    def ask(self, name: str, value: Any, **more: Any) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps({name: value} | more).encode() + b"\n")
        self._process.stdin.flush()
        answered = self._process.stdout.readline().decode(errors="replace")
        assert answered, "the program ended"
        found = json.loads(answered)
        self.told = found["told"]
        if "error" not in found:
            return found["answer"]
        kind, message = found["error"]["kind"], found["error"]["message"]
        errors = {each.__name__: each for each in (BundleError, PromptError, UsageError)}
        raise errors.get(kind, SpeccompileError)(message, hint=found["error"]["hint"] or None)

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        assert self._process.wait(10) == 0


def outcome(call: Callable[[], Any]) -> tuple[Any, ...]:
    """Return what a call raises, in words; else what it returns."""
    try:
        return (call(),)
    except SpeccompileError as error:
        return type(error).__name__, str(error), error.hint
