"""Run bundles: `Bundle.open(folder).generate(prompt)`.

In: a bundle folder and prompts. Out: tokens, text and times.
`rounds` is the decode loop, `devices` the engines, `text` tokenizers and chat templates, `constraints` grammars.
Needs numpy, an engine library and tokenizers; never torch. Imported by `serving` and by the rooms that measure and
prove; imports `bundle`, `index`, `native` and what lies below.
"""

from speccompile.runtime.async_twins import AsyncTextStream
from speccompile.runtime.bundle import Bundle
from speccompile.runtime.generation import Generation, first_difference
from speccompile.runtime.generation_options import GenerationKeywords, GenerationOptions
from speccompile.runtime.rounds.host_drafts import Proposer
from speccompile.runtime.text_proposer import TextProposer
from speccompile.runtime.text_stream import TextStream
from speccompile.runtime.timings import Timings

load = Bundle.open

__all__ = [
    "AsyncTextStream",
    "Bundle",
    "Generation",
    "GenerationKeywords",
    "GenerationOptions",
    "Proposer",
    "TextProposer",
    "TextStream",
    "Timings",
    "first_difference",
    "load",
]
