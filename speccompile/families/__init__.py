"""Ways of drafting. One folder each, which holds everything that is its own; this file is the registry.

    <kind>/__init__.py    FAMILY: its keys of the recipe, what it goes together with, how its folders are read. No torch
    <kind>/drafter.py     make(site) -> Drafter: its torch modules, with the weights loaded
    <kind>/reference.py   teachers(site) -> the drafter once more, without caches, for the proof; and for heads
                          small(head) -> a description of the same kind for a small model
    head, folder, dialects, layers, pickles, proposal: what heads have in common on disk, without torch
    site, weights         what makes drafters and references from a plan
    cascades              what makes what is looked up beside any of them

What families share in a round stays in `step/draft`: the protocol, readings, children, trees. To add a family: its
folder, its line here, its row of the README.
"""

from importlib import import_module
from typing import Any

from speccompile.families import (
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
from speccompile.families.family import HEAD, MASKS, OWN, TARGET, Family

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
