"""Types of the names in `__init__.py`, which imports them when they are used."""

from speccompile.compiler.from_recipe import build as build
from speccompile.compiler.from_recipe import plan as plan
from speccompile.runtime import AsyncTextStream as AsyncTextStream
from speccompile.runtime import Bundle as Bundle
from speccompile.runtime import Generation as Generation
from speccompile.runtime import GenerationOptions as GenerationOptions
from speccompile.runtime import TextStream as TextStream
from speccompile.runtime import Timings as Timings
from speccompile.runtime import load as load

__version__: str
