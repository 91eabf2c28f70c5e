"""Commands and entries of Python where packages are missing.

    python -m tests.light.missing_packages < CASES > ANSWERS

In a process of its own: speccompile is imported once more for each, and what it registers with transformers would stay.
CASES: a list of {"hidden": modules, "folder": to run in} with "command", its words, or "entry", a name in speccompile
and its arguments. ANSWERS: for each a list: of a command its exit status, stdout and stderr; of an entry the error's
type, text, module and hint. JSON.
"""

import contextlib
import io
import json
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any


@contextlib.contextmanager
def hidden(*modules: str) -> Iterator[None]:
    """Hide modules from imports inside a `with` block, in which speccompile's own modules are imported anew."""
    before = dict(sys.modules)
    for name in before:
        top = name.partition(".")[0]
        if top == "speccompile":
            del sys.modules[name]
        if top in modules:
            sys.modules[name] = None  # type: ignore[assignment]
    sys.modules.update(dict.fromkeys(modules))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in sys.modules.keys() - before.keys():
            if name.partition(".")[0] in ("speccompile", *modules):
                del sys.modules[name]
        sys.modules.update(before)


def run_command(words: list[str]) -> list[Any]:
    with contextlib.redirect_stdout(io.StringIO()) as output, contextlib.redirect_stderr(io.StringIO()) as talk:
        code = import_module("speccompile.cli.exit_codes").run(import_module("speccompile.cli.main").group, words)
    return [code, output.getvalue(), talk.getvalue()]


def call_entry(name: str, *arguments: str) -> list[Any]:
    try:
        getattr(import_module("speccompile"), name)(*arguments)
    except ModuleNotFoundError as error:
        return [type(error).__name__, str(error), error.name, getattr(error, "hint", None)]
    return []


def answer(case: dict[str, Any]) -> list[Any]:
    with contextlib.chdir(case["folder"]), hidden(*case["hidden"]):
        return run_command(case["command"]) if "command" in case else call_entry(*case["entry"])


if __name__ == "__main__":
    answers = [answer(case) for case in json.load(sys.stdin)]
    json.dump(answers, sys.stdout)
