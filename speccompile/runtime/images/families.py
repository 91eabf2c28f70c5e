"""Families of models that see pictures."""

from speccompile.runtime.images.family import Family
from speccompile.runtime.images.tiles import Gemma3, Idefics3, InternVL

FAMILIES: dict[str, type[Family]] = {"gemma3": Gemma3, "idefics3": Idefics3, "internvl": InternVL}
"""Name of a family in a manifest -> its preprocessing."""
