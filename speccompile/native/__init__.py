"""The compiled part: kernels for ONNX Runtime on the processor, for small windows and quantized weights.

kernels/    the arithmetic: what a processor's path must offer (lanes.h), and what is made of it
operators/  the kernels as operators of ONNX Runtime, in the domain `speccompile.native`

pip compiles it where a C++17 compiler is (`speccompile.native.packaging`). Without it graphs run on ONNX Runtime's own
kernels, slower: what they call has a body in ONNX as well.

$SPECCOMPILE_KERNELS names the path to take, one of `paths()`, or is "none" for ONNX Runtime's own kernels.
"""

import ctypes
import functools
import os
import sys
from pathlib import Path

from speccompile.errors import UsageError

DOMAIN = "speccompile.native"
"""Of the operators in graphs."""

VARIABLE = "SPECCOMPILE_KERNELS"

NONE = "none"
"""The path of ONNX Runtime's own kernels."""

_FILE = "libspeccompile_kernels" + (".dylib" if sys.platform == "darwin" else ".so")


def library() -> Path | None:
    """The compiled library that sessions load; None where there is none, or where it is not wanted."""
    path = Path(__file__).parent / _FILE
    return path if path.is_file() and os.environ.get(VARIABLE) != NONE else None


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
        raise UsageError(
            f"${VARIABLE} is '{wanted}', which this machine cannot run",
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
