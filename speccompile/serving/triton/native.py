"""Libraries of the native backend: their paths, and whether they can open a bundle."""

import ctypes
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from speccompile import native
from speccompile.errors import KINDS, EngineError
from speccompile.native.locate import HINT

BACKEND, RUNTIME, ONNXRUNTIME = "libtriton_speccompile.so", "libspeccompile.so.1", "libonnxruntime.so.1"
"""Names under which the server, the backend and the runtime look for the libraries."""

VARIABLE = native.ONNXRUNTIME
"""Environment variable with ONNX Runtime's library, which the runtime reads too."""

_PROMPT = KINDS["prompt"].number
"""SPC_PROMPT: the bundle has no tokenizer."""


@dataclass(frozen=True)
class Libraries:
    """Libraries that the server loads, without Python."""

    backend: Path
    runtime: Path
    onnxruntime: Path

    def named(self) -> dict[str, Path]:
        """Return the libraries by their names in a model's folder."""
        return {BACKEND: self.backend, RUNTIME: self.runtime, ONNXRUNTIME: self.onnxruntime}


def find(folder: Path | None = None) -> Libraries:
    """Return the libraries in `folder`, by default where they are installed. Raise EngineError naming the missing
    one."""
    if sys.platform != "linux":
        raise EngineError(f"the native backend is for Linux, this is {sys.platform}", hint="use --backend python")
    installed = native.locations()
    backend, runtime = installed.triton, installed.library
    if folder is not None:
        backend, runtime = folder / BACKEND, folder / RUNTIME
    if backend is None or runtime is None or not (backend.is_file() and runtime.is_file()):
        where = f" in {folder}: expected {BACKEND} and {RUNTIME} there" if folder else ""
        raise EngineError(f"the native backend is not compiled{where}", hint=f"{HINT}; or use --backend python")
    return Libraries(backend.resolve(), runtime.resolve(), _onnxruntime(installed))


def _onnxruntime(installed: native.Locations) -> Path:
    """Return ONNX Runtime's shared library, which its Python package contains next to the Python module."""
    found = Path(named) if (named := os.environ.get(VARIABLE)) else installed.onnxruntime
    if found is None:
        raise EngineError(
            "found no library of ONNX Runtime for the native backend: the package onnxruntime has none here",
            hint=f"pip install onnxruntime, or name the library in ${VARIABLE}",
        )
    return found


def try_bundle(libraries: Libraries, bundle: Path, engine: str | None) -> str | None:
    """Open a bundle with the native runtime, and encode a text if it has a tokenizer.

    Return the reason why the runtime takes only token ids, or None if it takes text or the bundle does not either.
    Raise EngineError with the reason if it does not open the bundle.
    """
    library = _declared(libraries.runtime)
    words = ["onnxruntime", str(libraries.onnxruntime), "verify", "false", *(["engine", engine] if engine else [])]
    options = (ctypes.c_char_p * (len(words) + 1))(*map(os.fsencode, words), None)
    opened = ctypes.c_void_p()
    if error := library.spc_bundle_open(os.fsencode(bundle), options, ctypes.byref(opened)):
        message, hint = _taken(library, error)
        raise EngineError(
            f"the native backend does not take this bundle: {message}", hint=hint or "use --backend python"
        )
    ids, count = (ctypes.c_int64 * 8)(), ctypes.c_size_t(8)
    error = library.spc_bundle_encode(opened, b"a", ctypes.c_size_t(1), 1, ids, ctypes.byref(count))
    kind = library.spc_error_kind(error) if error else None
    problem = _taken(library, error)[0] if error else None
    library.spc_bundle_free(opened)
    return None if kind == _PROMPT else problem


def _declared(runtime: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(runtime))
    for name in ("spc_error_message", "spc_error_hint"):
        getattr(library, name).restype = ctypes.c_char_p
    for name in ("spc_bundle_open", "spc_bundle_encode"):
        getattr(library, name).restype = ctypes.c_void_p
    for name in ("message", "hint", "kind", "free"):
        getattr(library, f"spc_error_{name}").argtypes = [ctypes.c_void_p]
    return library


def _taken(library: ctypes.CDLL, error: int) -> tuple[str, str]:
    """Return the message and hint of an error, and free it."""
    message, hint = library.spc_error_message(error).decode(), library.spc_error_hint(error).decode()
    library.spc_error_free(error)
    return message, hint
