"""The compiled part: kernels for ONNX Runtime on the processor (`kernels/`, `operators/`), and the runtime in C++ that
runs bundles without Python, room by room as in Python (`bundle/`, `runtime/`, `text/`, `include/`, `cli/`, `triton/`).

In: sources that pip compiles where a C++17 compiler is (`packaging`). Out: a library of operators, and what
`locations()` finds. Without it graphs run on ONNX Runtime's own kernels: what they call has a body in ONNX as well.
$SPECCOMPILE_KERNELS names the path to take, one of `paths()`, or is "none" for ONNX Runtime's own kernels.
Imported by `runtime` and what lies above it; imports `errors` alone.
"""

import ctypes
import functools
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speccompile.errors import UsageError
from speccompile.native.locate import HINT
from speccompile.native.locate import Locations as Locations
from speccompile.native.locate import locations as locations

DOMAIN = "speccompile.native"
"""Of the operators in graphs."""

VARIABLE = "SPECCOMPILE_KERNELS"
ONNXRUNTIME = "SPECCOMPILE_ONNXRUNTIME"
"""What names the library of ONNX Runtime that the runtime in C++ loads."""

NONE = "none"
"""The path of ONNX Runtime's own kernels."""

FILE = Path(__file__).parent / f"libspeccompile_kernels{'.dylib' if sys.platform == 'darwin' else '.so'}"
"""Where the library lies, if it was compiled."""


COSTS = (
    "decoding has 0.75 of its speed in float32, 0.6 in int8 and 0.4 in int4 (0.35 B parameters, one thread, AMX)",
    "prompts are read at 0.9, 0.15 and 0.3 of their speed",
    "a process holds its weights, of that model 1.3 GB in float32 and 0.5 in int8, instead of mapping them",
    "other processors give other bits; windows are still compared when a bundle is first opened, and differences told",
)
"""Of running on ONNX Runtime's own kernels instead, as measured on a random Llama (scripts/random_llama.py)."""


@dataclass(frozen=True)
class Absence:
    """Why the kernels are not in use, and what to do about it."""

    problem: str
    hint: str
    wanted: bool = False
    """It is the user who has switched them off."""
    costs: tuple[str, ...] = COSTS


def library() -> Path | None:
    """The compiled library that sessions load; None where there is none, or where it is not wanted."""
    return FILE if absence() is None else None


def absence() -> Absence | None:
    """None where the kernels are in use."""
    if os.environ.get(VARIABLE) == NONE:
        return Absence(f"they are switched off by ${VARIABLE}", f"unset {VARIABLE}", wanted=True)
    if not FILE.is_file():
        return Absence("they were not compiled", HINT)
    try:
        _loaded(FILE)
    except OSError as error:  # as where a folder came from another processor, or from a newer system
        return Absence(f"they cannot be loaded: {error}", HINT)
    return None


def register(options: Any) -> None:
    """Let sessions with these options, of ONNX Runtime, find the operators; without the library nothing happens."""
    path = library()
    if path is not None:
        options.register_custom_ops_library(str(path))


def paths() -> list[str]:
    """The paths that this processor can run, the fastest first; empty without the library."""
    path = library()
    if path is None:
        return []
    found, loaded = list[str](), _loaded(path)
    while (name := loaded.speccompile_kernels_path(len(found))) is not None:
        found.append(name.decode())
    return found


def kernels() -> str:
    """The path in use, "none" without the library. Raises UsageError when $SPECCOMPILE_KERNELS names another one."""
    known, wanted = paths(), os.environ.get(VARIABLE)
    if wanted and wanted not in (*known, NONE):
        why = f": {found.problem}" if (found := absence()) else ""
        raise UsageError(
            f"${VARIABLE} is '{wanted}', which this machine cannot run{why}",
            hint=f"set it to one of {', '.join([*known, NONE])}, or unset it for the fastest",
        )
    path = library()
    return NONE if path is None else str(_loaded(path).speccompile_kernels().decode())


def use(path: str) -> None:
    """Take another of `paths()` from now on, in all sessions of the process. Raises ValueError for another name."""
    found = library()
    if found is None or not _loaded(found).speccompile_kernels_use(path.encode()):
        raise ValueError(f"received {path!r}, expected one of {paths()}")


@functools.cache
def _loaded(path: Path) -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(path))
    for function in (loaded.speccompile_kernels, loaded.speccompile_kernels_path):
        function.restype = ctypes.c_char_p
    return loaded
