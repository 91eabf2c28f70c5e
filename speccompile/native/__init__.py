"""C++ code: CPU kernels for ONNX Runtime (`kernels/`, `operators/`), and a runtime that runs bundles without Python,
with the same packages as in Python (`bundle/`, `runtime/`, `text/`, `include/`, `cli/`, `triton/`).

In: sources that pip compiles if it finds a C++17 compiler (`packaging`). Out: a library of custom ops, and the files of
`locations()`. Without it graphs run on ONNX Runtime's own kernels: every custom op has a function body as fallback.
$SPECCOMPILE_KERNELS selects a code path of `paths()`, or "none" for ONNX Runtime's own kernels.
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
"""Domain of the custom ops in graphs."""

THREADS_ENTRY = "speccompile.threads"
"""Entry of a session's configuration: number of threads for the custom ops, which have a thread pool of their own.
Without it they use ONNX Runtime's threads."""

VARIABLE = "SPECCOMPILE_KERNELS"
ONNXRUNTIME = "SPECCOMPILE_ONNXRUNTIME"
"""Environment variable with the path of ONNX Runtime's library for the C++ runtime."""

NONE = "none"
"""Name of the code path with ONNX Runtime's own kernels."""

FILE = Path(__file__).parent / f"libspeccompile_kernels{'.dylib' if sys.platform == 'darwin' else '.so'}"
"""Path of the library, if it was compiled."""


COSTS = (
    "decoding has 0.75 of its speed in float32, 0.6 in int8 and 0.4 in int4 (0.35 B parameters, one thread, AMX)",
    "prompts are read at 0.9, 0.15 and 0.3 of their speed",
    "a process holds its weights, of that model 1.3 GB in float32 and 0.5 in int8, instead of mapping them",
    "other processors give other bits; windows are still compared when a bundle is first opened, and differences told",
)
"""Costs of ONNX Runtime's own kernels instead, measured on a random Llama (scripts/random_llama.py)."""


@dataclass(frozen=True)
class Absence:
    """Reason why the kernels are not in use, and a remedy."""

    problem: str
    hint: str
    wanted: bool = False
    """True if the user has disabled them."""
    costs: tuple[str, ...] = COSTS


def library() -> Path | None:
    """Return the compiled library that sessions load, or None if it is missing or disabled."""
    return FILE if absence() is None else None


def absence() -> Absence | None:
    """Return the reason why the kernels are not in use, or None if they are."""
    if os.environ.get(VARIABLE) == NONE:
        return Absence(f"they are switched off by ${VARIABLE}", f"unset {VARIABLE}", wanted=True)
    if not FILE.is_file():
        return Absence("they were not compiled", HINT)
    try:
        _loaded(FILE)
    except OSError as error:  # e.g. built for another processor or a newer system
        return Absence(f"they cannot be loaded: {error}", HINT)
    return None


def register(options: Any) -> None:
    """Register the custom ops in ONNX Runtime's session options; do nothing without the library."""
    path = library()
    if path is not None:
        options.register_custom_ops_library(str(path))


def paths() -> list[str]:
    """Return the code paths that this processor can run, the fastest first; empty without the library."""
    path = library()
    if path is None:
        return []
    found, loaded = list[str](), _loaded(path)
    while (name := loaded.speccompile_kernels_path(len(found))) is not None:
        found.append(name.decode())
    return found


def kernels() -> str:
    """Return the code path in use, "none" without the library. Raise UsageError if $SPECCOMPILE_KERNELS is invalid."""
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
    """Switch all sessions of the process to another of `paths()`. Raise ValueError for an unknown name."""
    found = library()
    if found is None or not _loaded(found).speccompile_kernels_use(path.encode()):
        raise ValueError(f"received {path!r}, expected one of {paths()}")


@functools.cache
def _loaded(path: Path) -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(path))
    for function in (loaded.speccompile_kernels, loaded.speccompile_kernels_path):
        function.restype = ctypes.c_char_p
    return loaded
