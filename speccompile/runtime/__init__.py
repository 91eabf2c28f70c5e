"""Run bundles: `Bundle.open(folder).generate(prompt)`. Needs numpy, an engine library and tokenizers; never torch."""

from speccompile.runtime.bundle import Bundle
from speccompile.runtime.generation import Generation, first_difference
from speccompile.runtime.proposals import Proposer
from speccompile.runtime.text_stream import TextStream

__all__ = ["Bundle", "Generation", "Proposer", "TextStream", "first_difference"]
