"""Builds of one recipe in all combinations of some settings, as tasks of a pool."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from speccompile.bundle.writer import check_output
from speccompile.compiler.from_recipe import build_plan
from speccompile.errors import SpeccompileError, UsageError
from speccompile.machine.executor import Executor, Task
from speccompile.recipe import load_recipe, make_plan
from speccompile.recipe.load import parse_yaml
from speccompile.recipe.resource_estimate import estimate_resources


@dataclass(frozen=True)
class BuildVariant:
    """One combination. settings: KEY=VALUE, as for --set; memory: bytes that its build needs."""

    settings: tuple[str, ...]
    output: Path
    memory: int


def combinations(varied: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the settings of every combination of "KEY=[VALUE, ..]", the last key changing fastest. Raise
    UsageError."""
    axes = []
    for each in varied:
        key, _, text = each.partition("=")
        values = parse_yaml(text, f"--vary {key}") if text else None
        if not key or not isinstance(values, list) or not values:
            raise UsageError(
                f"--vary: received {each!r}, expected KEY=[VALUE, ..]",
                hint="write it as in --vary drafter.tokens=[2,4]",
            )
        axes.append([f"{key}={value if isinstance(value, str) else json.dumps(value)}" for value in values])
    return list(product(*axes))


def read_cells(
    recipe: Path, overrides: Sequence[str], varied: Sequence[str], output: Path | None
) -> list[BuildVariant]:
    """Plan every combination, before any work. output: parent of their folders; by default build/<name>-matrix. Raise
    RecipeError for a combination that the recipe does not allow, UsageError for a folder that is in the way."""
    cells: dict[Path, BuildVariant] = {}
    for settings in combinations(varied):
        plan = make_plan(load_recipe(recipe, [*overrides, *settings]))
        base = output or Path("build") / f"{plan.name}-matrix"
        folder = (base / (_name(settings) or plan.name)).absolute()
        if folder in cells:
            raise UsageError(
                f"--vary: received {' '.join(cells[folder].settings)} and {' '.join(settings)}, which would both be "
                f"built into '{folder.name}', expected values with names that differ",
                hint="build them with `speccompile ray build` one after the other, with another --output",
            )
        check_output(folder)
        cells[folder] = BuildVariant(settings, folder, estimate_resources(plan).memory)
    return list(cells.values())


def build_cells(
    pool: Executor,
    recipe: Path,
    overrides: Sequence[str],
    cells: Sequence[BuildVariant],
    *,
    prove: bool,
    use_build_cache: bool,
) -> Iterator[tuple[BuildVariant, SpeccompileError | None]]:
    """Yield (variant, error of its build or None) in completion order."""
    tasks = [
        Task(
            f"building {cell.output.name}",
            _build,
            (recipe, (*overrides, *cell.settings), cell.output, prove, use_build_cache),
        )
        for cell in cells
    ]
    for number, found in pool.run(tasks):
        yield cells[number], found if isinstance(found, SpeccompileError) else None


def _build(recipe: Path, overrides: Sequence[str], output: Path, prove: bool, use_build_cache: bool) -> None:
    """Build one variant, on the machine that runs the task."""
    build_plan(
        make_plan(load_recipe(recipe, overrides)), output, notes=(), prove=prove, use_build_cache=use_build_cache
    )


def _name(settings: Sequence[str]) -> str:
    """Return a folder's name for the settings."""
    return ",".join(re.sub(r"[^\w.=-]+", "_", each).strip("_") for each in settings)


def variant_json(cell: BuildVariant, error: SpeccompileError | None) -> dict[str, Any]:
    """Return a variant's entry in the documented object of `ray build --json`."""
    failure = None if error is None else {"message": str(error), "hint": error.hint}
    return {"settings": list(cell.settings), "output": str(cell.output), "error": failure}
