"""Print paths of the C++ runtime, for a shell: `cmake -Dspeccompile_DIR=$(python -m speccompile.native --cmake-dir)`.

pip installs `command` as speccompile-native.
"""

import argparse
import os
import sys

from speccompile.native import ONNXRUNTIME
from speccompile.native.locate import HINT, locations

OPTIONS = {
    "--library": ("library", "libspeccompile, with the C ABI"),
    "--include-dir": ("include", "the folder with speccompile.h, speccompile.hpp and speccompile_scheduler.hpp"),
    "--cmake-dir": ("cmake", "the folder for speccompile_DIR, or on CMAKE_PREFIX_PATH"),
    "--pkgconfig-dir": ("pkgconfig", "the folder for PKG_CONFIG_PATH"),
    "--command": ("command", "the program speccompile-native"),
    "--triton": ("triton", "libtriton_speccompile.so, the backend for Triton Inference Server"),
    "--onnxruntime": ("onnxruntime", "the library of the installed onnxruntime, for $SPECCOMPILE_ONNXRUNTIME"),
}


def main(arguments: list[str] | None = None) -> int:
    """Print the requested paths, one per line. Return 1 if one does not exist."""
    parser = argparse.ArgumentParser(prog="python -m speccompile.native", description="Where the runtime in C++ lies.")
    for option, (name, help_) in OPTIONS.items():
        parser.add_argument(option, dest="names", action="append_const", const=name, help=help_)
    names, found = parser.parse_args(arguments).names, locations()
    if not names:
        parser.error(f"expected at least one of {', '.join(OPTIONS)}")
    for name in names:
        path = getattr(found, name)
        if path is None:
            return _absent(name)
        print(path)  # noqa: T201
    return 0


def _absent(name: str) -> int:
    if name == "onnxruntime":
        problem, hint = "the package onnxruntime, or its library, is not installed", "pip install onnxruntime"
    elif name == "triton" and locations().library is not None:
        problem, hint = "the backend for Triton was not compiled", HINT
    else:
        problem, hint = "the runtime in C++ was not compiled", HINT
    sys.stderr.write(f"speccompile: {problem}\nhint: {hint}\n")
    return 1


def command() -> int:
    """Replace this process by speccompile-native, with the installed onnxruntime's library as default."""
    found = locations()
    if found.command is None:
        return _absent("command")
    if found.onnxruntime is not None:
        os.environ.setdefault(ONNXRUNTIME, str(found.onnxruntime))
    return os.execv(found.command, [str(found.command), *sys.argv[1:]])  # noqa: S606


if __name__ == "__main__":
    sys.exit(main())
