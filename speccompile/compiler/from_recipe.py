"""Plan and build from a recipe, in Python and for the command line: cheap checks come before torch is
imported."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from speccompile.bundle.writer import check_output, folder_path
from speccompile.errors import RecipeError
from speccompile.extras import naming_extra, require
from speccompile.machine.keywords import checks_keywords
from speccompile.machine.system import collection_paused
from speccompile.plan.plan import Plan
from speccompile.progress import LOGGER, loading_torch

Recipe = str | Path | Mapping[str, Any]
"""A recipe.yaml, the folder that holds one, or a mapping with the same keys, whose paths start at the current folder.
"""
Overrides = Mapping[str, Any] | Sequence[str]
"""Values for keys such as "drafter.tokens", or texts as after --set ("drafter.tokens=6")."""


@checks_keywords("plan")
def plan(recipe: Recipe, *, overrides: Overrides = ()) -> Plan:
    """Return the plan of a build, with every default decided. Needs no torch, but the extra `compile`.

    recipe: path of a recipe.yaml or of the folder that holds one, or a mapping with the same keys. overrides: values of
    keys that replace the recipe's. Raise RecipeError for a wrong recipe, CheckpointError and UnsupportedModelError for
    a model that cannot be built.
    """
    with naming_extra("planning"):
        from speccompile.recipe import load_recipe, make_plan
        from speccompile.recipe.load import parse_recipe
    settings, by = _settings(overrides), "overrides:" if isinstance(overrides, Mapping) else "--set"
    if isinstance(recipe, Mapping):
        return make_plan(parse_recipe(_plain(recipe), Path("recipe"), settings, by))
    if not isinstance(recipe, str | Path):
        raise RecipeError(
            f"received the recipe {recipe!r}, expected a path or a mapping of keys",
            hint='for example {"name": "demo", "target": {"model": "models/demo"}}',
        )
    return make_plan(load_recipe(Path(recipe), settings, by))


@checks_keywords("build")
def build(
    recipe: Recipe | Plan,
    output: str | Path | None = None,
    *,
    overrides: Overrides = (),
    prove: bool = True,
    dump_graphs: str | Path | None = None,
    reduce: bool = False,
    cache: bool = True,
) -> Path:
    """Build a bundle and return its folder, as `speccompile build` does.

    recipe, overrides: as for `plan`; a plan is built as it is. output: the bundle's folder, by default build/NAME; a
    bundle that lies there is replaced once the new one is complete. prove: compare the bundle's tokens with the
    reference's; without it the bundle says that it is not proven. dump_graphs: a folder for neutral and lowered graphs.
    reduce: write a minimal graph to OUTPUT.reduced for each that TensorRT refuses. cache: take steps from the build
    cache, and keep them there.

    Progress goes to the logger "speccompile", and the plan's notes as warnings. Raise, beside the errors of `plan`,
    BuildError for an output that cannot be used and for too little disk or memory, before the work; ProofError, and
    keep nothing, if the proof fails; EngineError for engines that could not be built, after all others.
    """
    if isinstance(recipe, Plan):
        if overrides:
            raise RecipeError(
                "received overrides for a plan, in which everything is decided, expected them for a recipe",
                hint="give them to plan",
            )
        decided = recipe
    else:
        decided = plan(recipe, overrides=overrides)
    folder = Path("build") / decided.name if output is None else folder_path("output", output)
    dump = None if dump_graphs is None else folder_path("dump_graphs", dump_graphs)
    return build_plan(decided, folder, prove=prove, dump_graphs=dump, reduce=reduce, use_build_cache=cache)


def build_plan(plan: Plan, output: Path, *, notes: Sequence[str] | None = None, **settings: Any) -> Path:
    """Build a plan into `output` after a check of that, of disk and of memory, and return the folder.

    notes: to log before, by default the plan's own. settings: of `compiler.build.build`. Raise what that raises; an
    error of memory or disk says what was estimated. Raise CheckpointError for a damaged tokenizer.json.
    """
    require("compile", purpose="building")  # all of it: some modules would be missed after minutes of work
    from speccompile.compiler.checkpoints.facts import TOKENIZER
    from speccompile.machine.formats.json_files import read_json_object
    from speccompile.recipe.resource_estimate import estimate_resources
    from speccompile.recipe.resources import check_resources, find_resources, with_estimate

    check_output(output)
    read_json_object(plan.target.folder / TOKENIZER)  # a download that broke off is refused now, not after minutes
    needs, available = estimate_resources(plan), find_resources(output)
    check_resources(needs, available)
    for note in plan.notes if notes is None else notes:
        LOGGER.warning("note: %s", note)
    try:
        # Imports torch: the checks above must be fast. By name: a type checker of a user's script need not read it.
        with collection_paused():
            with loading_torch():
                compiler = import_module("speccompile.compiler.build")
            import_module("speccompile.compiler.models.load").quiet_transformers()
            folder: Path = compiler.build(plan, output, **settings)  # which collects garbage again, imports apart
    except Exception as error:
        if (explained := with_estimate(error, needs, available)) is error:
            raise
        raise explained from error
    return folder


def _settings(overrides: Overrides) -> list[str]:
    """Return overrides as texts of --set. Raise RecipeError for other things."""
    if isinstance(overrides, Mapping):
        return [f"{key}={_as_yaml(key, value)}" for key, value in overrides.items()]
    if isinstance(overrides, str) or not isinstance(overrides, Sequence):
        raise RecipeError(
            f"received the overrides {overrides!r}, expected a mapping of keys to values",
            hint='for example overrides={"drafter.tokens": 6}',
        )
    return list(overrides)


def _as_yaml(key: str, value: Any) -> str:
    from yaml import YAMLError

    from speccompile.recipe.load import dump_yaml

    try:
        return dump_yaml(_plain(value), in_a_line=True)
    except YAMLError:
        raise RecipeError(
            f"overrides: {key}: received {value!r}, expected a value that YAML has",
            hint="give a text, a number or a list",
        ) from None


def _plain(value: Any) -> Any:
    """Return a copy in the types that YAML has, paths as text."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, Path) else value
