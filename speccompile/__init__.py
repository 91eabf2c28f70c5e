"""speccompile: compile a target LLM and its drafter into graphs that draft, verify, accept and commit by themselves.

    from speccompile import Bundle, build, load, plan

`plan` decides a recipe, `build` makes a bundle of it, `load` opens one. Importing this is light: each name is imported
when it is first used. Type checkers read `__init__.pyi`.
"""

import os
import sys
from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Read once, when ONNX Runtime is imported; its own function comes after an identifier of this machine has been written
# into the user's cache folder. A value that the user has set stays.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

_PLACES = {
    "AsyncTextStream": "speccompile.runtime",
    "Bundle": "speccompile.runtime",
    "Generation": "speccompile.runtime",
    "GenerationOptions": "speccompile.runtime",
    "TextStream": "speccompile.runtime",
    "Timings": "speccompile.runtime",
    "build": "speccompile.compiler.from_recipe",
    "load": "speccompile.runtime",
}
"""Names -> the module that has them. By name, like plug-ins: rooms that import `speccompile` for its version import
nothing else with it."""

__all__ = [
    "AsyncTextStream",
    "Bundle",
    "Generation",
    "GenerationOptions",
    "TextStream",
    "Timings",
    "__version__",
    "build",
    "load",
    "plan",
]


def __getattr__(name: str) -> Any:
    if name == "plan":
        return import_module("speccompile.plan")  # the room of this name, which can be called
    if name not in _PLACES:
        # With these two Python adds the nearest name when it shows the error.
        raise AttributeError(f"module 'speccompile' has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    found = globals()[name] = getattr(import_module(_PLACES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
