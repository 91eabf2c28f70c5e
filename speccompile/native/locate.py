"""Paths of the C++ runtime in this package, for CMake, pkg-config, a loader and a shell."""

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent

PREFIX = "installed"
"""Installation folder of the runtime, with include, lib and bin."""

ABI = 1
"""SPC_ABI of include/speccompile.h, a part of the library's name."""

HINT = "install a C++17 compiler (g++ or clang++), then: python -m speccompile.native.packaging"

_DARWIN = sys.platform == "darwin"


@dataclass(frozen=True)
class Locations:
    """Files and folders of the runtime; None if it was not compiled.

    library: library with the C ABI. include: folder of the C and C++ headers. cmake: for CMAKE_PREFIX_PATH
    or speccompile_DIR. pkgconfig: for PKG_CONFIG_PATH. command: speccompile-native. triton: the backend for Triton,
    next to the library. onnxruntime: library of the installed package, for $SPECCOMPILE_ONNXRUNTIME, or None.
    """

    library: Path | None
    include: Path | None
    cmake: Path | None
    pkgconfig: Path | None
    command: Path | None
    triton: Path | None
    onnxruntime: Path | None


def locations(package: Path = FOLDER) -> Locations:
    """Return the locations of the runtime that was compiled with this package."""
    prefix = package / PREFIX
    library = f"libspeccompile.{ABI}.dylib" if _DARWIN else f"libspeccompile.so.{ABI}"
    names = {
        "library": f"lib/{library}",
        "include": "include",
        "cmake": "lib/cmake/speccompile",
        "pkgconfig": "lib/pkgconfig",
        "command": "bin/speccompile-native",
        "triton": "lib/libtriton_speccompile.so",
    }
    found = {field: path if (path := prefix / name).exists() else None for field, name in names.items()}
    return Locations(**found, onnxruntime=_onnxruntime())


def _onnxruntime() -> Path | None:
    """Return ONNX Runtime's library of the installed package, without importing it."""
    package = importlib.util.find_spec("onnxruntime")
    if package is None or package.origin is None:
        return None
    pattern = "libonnxruntime.1.*.dylib" if _DARWIN else "libonnxruntime.so.1*"
    return next(iter(sorted((Path(package.origin).parent / "capi").glob(pattern))), None)
