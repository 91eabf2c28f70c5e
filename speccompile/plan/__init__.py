"""Decisions as frozen data: plans of a build (`plan`) and a training (`training_plan`), descriptions of a head and its
layers; and the form of errors about a recipe (`recipe_source`).

In: values. Out: the same values, also as readable JSON. Reads no files and imports no torch.
Imported by `drafters`, `recipe`, `compiler`, `measure`, `train` and `cli`; imports the ground alone.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Room(ModuleType):
    """Module that is the function `speccompile.plan` as well: users write `from speccompile import plan`, and once
    this package is imported, Python finds it under that name."""

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Return the plan of a build, with every default decided: see `speccompile.compiler.from_recipe.plan`."""
        # Imported by name: that module decides with rooms above this one.
        return import_module("speccompile.compiler.from_recipe").plan(*arguments, **keywords)


sys.modules[__name__].__class__ = _Room
