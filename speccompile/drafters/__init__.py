"""Drafting methods, a folder each: `<kind>/__init__.py` has METHOD (keys, valid combinations, reader of its folders;
no torch), `drafter.py` the torch modules, `reference.py` an independent copy for the proof, `training.py` the training.

In: a plan and the target. Out: a `step.draft.Drafter` of any kind, which the round calls.
Modules next to the folders read and write heads on disk; `compiler/step/draft` has what rounds of drafters share.
To add a method: its folder, its line here, `scripts/docs --write` for its row in docs/reference/support.md.
Imported by `recipe`, `compiler.build`, `measure`, `train` and `cli`; imports `compiler.prove`, `.step` and below.
"""

from collections.abc import Iterable, Iterator
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from speccompile.drafters import (
    assistant,
    bita,
    dflash,
    domino,
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
    pard2,
    pass_,
    prompt_lookup,
    redrafter,
    retrieval,
    suffix,
    token_recycling,
)
from speccompile.drafters.method import HEAD, MASKS, OWN, TARGET, DraftingMethod
from speccompile.errors import EngineError
from speccompile.plan.recipe_source import nearest

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
    pard2,
    mtp,
    dflash,
    dspark,
    domino,
    p_eagle,
    eagle3,
    eagle,
    medusa,
    hydra,
    redrafter,
    kangaroo,
    assistant,
    pass_,
    bita,
)

GROUP = "speccompile.drafters"
"""Group of the entry points by which other packages register drafting methods: each names such a folder's module."""


def _others() -> Iterator[ModuleType]:
    for point in entry_points(group=GROUP):
        try:
            folder = point.load()
            method = folder.METHOD
        except Exception as error:  # noqa: BLE001 - whatever a stranger's module raises
            method = error
        if not isinstance(method, DraftingMethod):
            where = f"{point.dist.name}, " if point.dist else ""
            raise EngineError(
                f"the drafting method '{point.name}' ({where}{point.value}) cannot be loaded: received "
                f"{type(method).__name__}: {method}, expected a module whose METHOD is a DraftingMethod",
                hint="mend or uninstall that package",
            )
        yield folder


def _registered(folders: Iterable[ModuleType]) -> dict[str, ModuleType]:
    """Return kind -> its module. Raise EngineError for a kind that is registered twice."""
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
"""Kind -> its drafting method, in the order in which messages list them."""

_CALLED = {name: kind for kind, method in DRAFTING_METHODS.items() for name in (kind, *method.aliases)}


def folders_elsewhere() -> list[Path]:
    """Return the folders of methods that other packages bring: their code decides what a build gives, as ours does."""
    others = (folder for folder in _FOLDER_OF.values() if folder not in _FOLDERS)
    return [Path(path) for folder in others for path in getattr(folder, "__path__", ())]


def kind_called(text: str) -> str:
    """Return the kind of this name or alias, such as eagle-3; the text itself if no kind has it."""
    return _CALLED.get(text.strip().lower().replace("-", "_"), text)


def kind_near(text: str) -> str | None:
    """Return the kind whose name or alias is most similar to a text that is neither; None if none is similar."""
    return _CALLED.get(nearest(text.strip().lower().replace("-", "_"), _CALLED) or "")


NONE = none.METHOD.kind
"""Name of the kind that does not draft."""
DEFAULT_KIND, DEFAULT_TOKENS = prompt_lookup.METHOD.kind, 8
"""Name of the kind that drafts where a recipe names none, and its number of drafts. On the demo's prompts it accepts as
much as suffix, 5.9 tokens a round, and drafts in a third of its time; with 4 drafts it is 3.8 tokens a round."""

KINDS_WITH_WEIGHTS = tuple(kind for kind, method in DRAFTING_METHODS.items() if method.weights in (OWN, HEAD))
"""Kinds whose drafters have separate weights."""
KINDS_SHARING_TARGET_WEIGHTS = tuple(
    kind for kind, method in DRAFTING_METHODS.items() if method.weights in (TARGET, MASKS)
)
"""Kinds that draft with the target's weights, and so in its precision."""
TARGET_SPECIFIC_KINDS = tuple(kind for kind, method in DRAFTING_METHODS.items() if method.weights in (HEAD, MASKS))
"""Kinds whose checkpoints were made for one target."""
KINDS_READING_TARGET_CACHE = tuple(kind for kind, method in DRAFTING_METHODS.items() if method.reads_target_cache)
"""Kinds with trained weights that read the target's KV cache."""


def module_of(kind: str, name: str) -> Any:
    """Import the module `drafter`, `reference` or `training` of a method: they import torch, which recipes must not."""
    return import_module(f"{_FOLDER_OF[kind].__name__}.{name}")


def has_module(kind: str, name: str) -> bool:
    """Return whether a method has a module: methods of other packages may lack a reference."""
    return find_spec(f"{_FOLDER_OF[kind].__name__}.{name}") is not None
