"""Drafting methods, a folder each: `<kind>/__init__.py` has METHOD (its keys, what it goes with, how its folders are
read; no torch), `drafter.py` its torch modules, `reference.py` the drafter once more for the proof, `training.py`.

In: a plan and the target. Out: a `step.draft.Drafter` that the round calls, whatever its kind.
What heads have in common on disk lies beside the folders, and what rounds of drafters share in `compiler/step/draft`.
To add one: its folder, its line here, its row of the README.
Imported by `recipe`, `compiler.build`, `measure`, `train` and `cli`; imports `compiler.prove`, `.step` and below.
"""

from collections.abc import Iterable, Iterator
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
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
from speccompile.drafters.method import HEAD, MASKS, OWN, TARGET, DraftingMethod
from speccompile.errors import EngineError

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

GROUP = "speccompile.drafters"
"""Entry points of other packages: each names a module that is such a folder."""


def _others() -> Iterator[ModuleType]:
    for point in entry_points(group=GROUP):
        try:
            folder = point.load()
            family = folder.METHOD
        except Exception as error:  # noqa: BLE001 - whatever a stranger's module raises
            family = error
        if not isinstance(family, DraftingMethod):
            where = f"{point.dist.name}, " if point.dist else ""
            raise EngineError(
                f"the drafting method '{point.name}' ({where}{point.value}) cannot be loaded: received "
                f"{type(family).__name__}: {family}, expected a module whose METHOD is a drafters.family.Family",
                hint="mend or uninstall that package",
            )
        yield folder


def _registered(folders: Iterable[ModuleType]) -> dict[str, ModuleType]:
    """Kind -> its folder. Raises EngineError for a kind that there is already."""
    found: dict[str, ModuleType] = {}
    for folder in folders:
        first = found.setdefault(folder.METHOD.kind, folder)
        if first is not folder:
            raise EngineError(
                f"the drafting method '{folder.METHOD.kind}' is there twice: received {folder.__name__}, expected "
                f"another kind than that of {first.__name__}",
                hint="rename the kind in its METHOD, or uninstall that package",
            )
    return found


_FOLDER_OF = _registered([*_FOLDERS, *_others()])

DRAFTING_METHODS: dict[str, DraftingMethod] = {kind: folder.METHOD for kind, folder in _FOLDER_OF.items()}
"""Kind -> its family, in the order in which the recipe names them."""

_CALLED = {name: kind for kind, family in DRAFTING_METHODS.items() for name in (kind, *family.aliases)}


def folders_elsewhere() -> list[Path]:
    """Return the folders of methods that other packages bring: their code decides what a build gives, as ours does."""
    others = (folder for folder in _FOLDER_OF.values() if folder not in _FOLDERS)
    return [Path(path) for folder in others for path in getattr(folder, "__path__", ())]


def kind_called(text: str) -> str:
    """The kind that people call so, as in eagle-3; the text itself where there is none."""
    return _CALLED.get(text.strip().lower().replace("-", "_"), text)


NONE = none.METHOD.kind
"""The kind without drafts."""

KINDS_WITH_WEIGHTS = tuple(kind for kind, family in DRAFTING_METHODS.items() if family.weights in (OWN, HEAD))
"""Kinds with weights of their own."""
KINDS_SHARING_TARGET_WEIGHTS = tuple(
    kind for kind, family in DRAFTING_METHODS.items() if family.weights in (TARGET, MASKS)
)
"""Kinds that draft with the target's weights, and so in its precision."""
TARGET_SPECIFIC_KINDS = tuple(kind for kind, family in DRAFTING_METHODS.items() if family.weights in (HEAD, MASKS))
"""Kinds whose checkpoints were made for one target."""
KINDS_READING_TARGET_CACHE = tuple(kind for kind, family in DRAFTING_METHODS.items() if family.reads_target_cache)
"""Kinds that read the target's caches, and have weights of their own."""


def module_of(kind: str, name: str) -> Any:
    """The module `drafter` or `reference` of a family: both import torch, which the recipe must not."""
    return import_module(f"{_FOLDER_OF[kind].__name__}.{name}")
