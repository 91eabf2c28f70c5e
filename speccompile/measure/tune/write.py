"""Write the chosen recipe to a new file."""

import os
from pathlib import Path
from typing import Any

from speccompile.errors import UsageError
from speccompile.measure.tune.run import Tuning
from speccompile.recipe import load_recipe
from speccompile.recipe.load import dump_yaml


def check_new(file: Path) -> None:
    """Raise UsageError, before the work, for a file that cannot be written."""
    if file.exists() or file.is_symlink():
        raise UsageError(
            f"--write: received '{file}', expected the name of a new file", hint="remove it, or give another"
        )
    if not file.parent.is_dir():
        raise UsageError(
            f"--write: received '{file}', expected a file in a folder that is there", hint=f"mkdir -p '{file.parent}'"
        )


def write_recipe(path: Path, tuning: Tuning, file: Path) -> None:
    """Write the recipe at `path` with the chosen settings to a new file, without comments. Relative paths are adapted
    to the new folder. Raise UsageError if the file exists by now."""
    check_new(file)
    recipe = load_recipe(path, tuning.settings)
    data = recipe.model_dump(exclude_none=True)
    for section, key in _references(data):
        section[key] = _moved(section[key], recipe.origin.resolve(section[key]), file.parent)
    file.write_text(dump_yaml(data), encoding="utf-8")


def _references(data: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    """Return (section, key) of every file and model that a recipe names."""
    drafter = data.get("drafter", {})
    models = [data["target"], drafter, *drafter.get("models", ())]
    found = [(section, "model") for section in models if "model" in section]
    return found + [(data["prove"], key) for key in ("prompts", "held_out") if key in data.get("prove", {})]


def _moved(written: str, place: Path, folder: Path) -> str:
    """Return the path relative to another folder. Anything but an existing relative path, as a Hub id, is unchanged."""
    if not place.exists() or written.startswith("~") or Path(written).is_absolute():
        return written
    return Path(os.path.relpath(place.resolve(), folder.resolve())).as_posix()
