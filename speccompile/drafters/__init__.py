"""Ways of drafting, a folder each: `<kind>/__init__.py` has FAMILY (its keys, what it goes with, how its folders are
read; no torch), `drafter.py` its torch modules, `reference.py` the drafter once more for the proof, `training.py`.

In: a plan and the target. Out: a `step.draft.Drafter` that the round calls, whatever its kind.
What heads have in common on disk lies beside the folders, and what rounds of drafters share in `compiler/step/draft`.
To add one: its folder, its line here, its row of the README.
Imported by `recipe`, `compiler.build`, `measure`, `train` and `cli`; imports `compiler.prove`, `.step` and below.
"""

from importlib import import_module
from typing import Any

from speccompile.drafters import (
    assistant,
    bita,
    dflash,
    dspark,
    eagle,
    eagle3,
    hydra,
    jacobi,
    kangaroo,
    layer_skip,
    lookahead,
    medusa,
    model,
    models,
    mtp,
    none,
    p_eagle,
    pard,
    pass_,
    prompt_lookup,
    retrieval,
    suffix,
    token_recycling,
)
from speccompile.drafters.family import HEAD, MASKS, OWN, TARGET, Family

_FOLDERS = (
    none,
    model,
    models,
    prompt_lookup,
    suffix,
    token_recycling,
    retrieval,
    lookahead,
    jacobi,
    layer_skip,
    pard,
    mtp,
    dflash,
    dspark,
    p_eagle,
    eagle3,
    eagle,
    medusa,
    hydra,
    kangaroo,
    assistant,
    pass_,
    bita,
)

FAMILIES: dict[str, Family] = {folder.FAMILY.kind: folder.FAMILY for folder in _FOLDERS}
"""Kind -> its family, in the order in which the recipe names them."""

_PACKAGES = {folder.FAMILY.kind: folder.__name__ for folder in _FOLDERS}
"""pass is a word of Python's."""

WEIGHTED = tuple(kind for kind, family in FAMILIES.items() if family.weights in (OWN, HEAD))
"""Kinds with weights of their own."""
SHARING = tuple(kind for kind, family in FAMILIES.items() if family.weights in (TARGET, MASKS))
"""Kinds that draft with the target's weights, and so in its precision."""
HEADS = tuple(kind for kind, family in FAMILIES.items() if family.weights in (HEAD, MASKS))
"""Kinds whose checkpoints were made for one target."""
BORROWING = tuple(kind for kind, family in FAMILIES.items() if family.reads_caches)
"""Kinds that read the target's caches, and have weights of their own."""


def module_of(kind: str, name: str) -> Any:
    """The module `drafter` or `reference` of a family: both import torch, which the recipe must not."""
    return import_module(f"{_PACKAGES[kind]}.{name}")
