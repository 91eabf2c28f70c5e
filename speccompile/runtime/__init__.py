"""Run bundles: `Bundle.open(folder).generate(prompt)`. Needs numpy, an engine library and tokenizers; never torch."""

from speccompile.runtime.bundle import Bundle, TextStream
from speccompile.runtime.generation import Generation, first_difference

__all__ = ["Bundle", "Generation", "TextStream", "first_difference"]
