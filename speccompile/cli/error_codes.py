"""Codes of errors, such as SC301: which one an error has, and the catalogue of all of them, `errors.toml`."""

import errno
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from traceback import walk_tb
from typing import Any

CATALOGUE = Path(__file__).with_name("errors.toml")
COMMAND_LINE, OUT_OF_MEMORY, DEFECT = "click.UsageError", "MemoryError", "Exception"
"""Names in the catalogue that are not those of speccompile's classes."""


@dataclass(frozen=True)
class Entry:
    """A kind of error. errors: names of its classes; modules: parts of speccompile that raise it; errno: names of the
    operating system's error numbers."""

    code: str
    title: str
    errors: tuple[str, ...]
    exit_code: int
    meaning: str
    cure: str
    modules: tuple[str, ...] = ()
    errno: tuple[str, ...] = ()


@cache
def catalogue() -> dict[str, Entry]:
    """Return all entries by their codes, in the order of the file."""
    import tomllib  # of no use to a command that does not fail

    data: dict[str, dict[str, Any]] = tomllib.loads(CATALOGUE.read_text(encoding="utf-8"))
    lists = {
        code: {key: tuple(fields.get(key, ())) for key in ("errors", "modules", "errno")}
        for code, fields in data.items()
    }
    return {code: Entry(code=code, **fields | lists[code]) for code, fields in data.items()}


def code_of(error: BaseException) -> str:
    """Return the code of an error, by its class and by the module that raised it."""
    if isinstance(error, OSError):
        number = errno.errorcode.get(error.errno or 0)
        entries = [entry for entry in catalogue().values() if "OSError" in entry.errors]
        return next((entry for entry in entries if number in entry.errno), entries[-1]).code
    module = next((name for name in _raising_modules(error) if name.startswith("speccompile.")), "")
    names = (cls.__name__ for cls in type(error).__mro__)
    return next(code for name in names if (code := find(name, module)) is not None)


def find(error: str, module: str = "") -> str | None:
    """Return the code of a class of errors that a module raises, or None for a class that the catalogue does not have.
    In modules that it does not name, a class has the first code whose first class it is."""
    entries = [entry for entry in catalogue().values() if error in entry.errors]
    fitting = [(len(prefix), entry) for entry in entries for prefix in entry.modules if is_part(module, prefix)]
    best = (
        max(fitting, key=lambda each: each[0])[1]
        if fitting
        else next((entry for entry in entries if entry.errors[0] == error), None)
    )
    return best.code if best is not None else None


def is_part(module: str, prefix: str) -> bool:
    """Return whether a module is the one that an entry names, or lies in it."""
    return f"{module}.".startswith(f"speccompile.{prefix}.")


def _raising_modules(error: BaseException) -> list[str]:
    """Return the modules of an error's traceback, the one that raised it first."""
    return [frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__)][::-1]
