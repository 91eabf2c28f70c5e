"""Reading of heads in folders, as a recipe reads them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from speccompile.drafters.find import read_head
from speccompile.plan.head import HeadPlan, HeadRequest, HeadTarget
from speccompile.plan.recipe_source import RecipeSource
from tests.json_files import edited_json

SIZES = {"vocabulary_size": 96, "hidden_size": 64, "layers": 4}


def read_as(
    kind: str,
    folder: Path,
    taps: tuple[str, ...] = (),
    switches: Mapping[str, Any] | None = None,
    threshold: float | None = None,
    **sizes: int,
) -> HeadPlan:
    """Return the head in a folder, for a target of `SIZES`, some of which may be others."""
    target, origin = HeadTarget("some/target", **SIZES | sizes), RecipeSource(folder.parent / "recipe.yaml")
    return read_head(folder, HeadRequest(kind, target, origin, taps, switches or {}, threshold))


def change_tensors(folder: Path, changes: Mapping[str, Any]) -> Path:
    """Put tensors into a head's weights, beside the others or in their place; None removes one. Return the folder."""
    path = folder / "model.safetensors"
    tensors = load_file(path) | dict(changes)
    save_file({name: tensor for name, tensor in tensors.items() if tensor is not None}, path)
    return folder


def change_config(folder: Path, section: str = "", **keys: Any) -> Path:
    """Change keys of a head's config, or of a section of it; None removes a key. Return the folder."""
    with edited_json(folder / "config.json") as config:
        its = config[section] if section else config
        its.update(keys)
        for key in [key for key, value in its.items() if value is None]:
            del its[key]
    return folder
