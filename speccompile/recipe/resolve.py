"""The word after `model:` -> a folder with a whole checkpoint: a local folder, or a model of the Hub."""

from pathlib import Path

from speccompile.compiler.checkpoints.facts import read_checkpoint
from speccompile.errors import CheckpointError, RecipeError
from speccompile.plan.plan import ModelPlan
from speccompile.plan.recipe_source import RecipeSource
from speccompile.recipe.hub import HEAD_PATTERNS, PATTERNS, fetch_snapshot


def resolve_model(
    section: str, reference: str, revision: str | None, precision: str, origin: RecipeSource
) -> ModelPlan:
    """Find and check the model of `section` ("target", "drafter" or "drafter.models.0").

    A folder beside the recipe comes first; a name that is not a path is then asked for at the Hub. Raises RecipeError
    for a model that is in neither, CheckpointError for a folder that is not a whole checkpoint.
    """
    folder, commit = resolve_folder(section, reference, revision, origin)
    return model_in(folder, reference, precision, revision, commit)


def model_in(
    folder: Path, reference: str, precision: str, revision: str | None = None, commit: str | None = None
) -> ModelPlan:
    """The model of a folder that was found already. Raises CheckpointError for one that is not a whole checkpoint."""
    files, facts = read_checkpoint(folder)
    return ModelPlan(reference, revision, commit, folder, files, precision, facts)


def resolve_folder(
    section: str, reference: str, revision: str | None, origin: RecipeSource, *, heads: bool = False
) -> tuple[Path, str | None]:
    """The folder that a reference names, and the commit of one that comes from the Hub.

    heads: pickled weights are fetched too, which some heads are published as. Raises RecipeError.
    """
    folder = origin.resolve(reference)
    if folder.is_dir():
        _refuse_revision(section, reference, revision, origin)
        return folder, None
    if folder.exists() or _is_path(reference):
        found = f"{'a file' if folder.exists() else 'nothing'} lies at {folder}"
        raise _missing(section, reference, found, "a model folder", origin)
    return _fetch(section, reference, revision, folder, origin, heads=heads)


def _fetch(
    section: str, reference: str, revision: str | None, folder: Path, origin: RecipeSource, *, heads: bool
) -> tuple[Path, str]:
    try:
        return fetch_snapshot(reference, revision, HEAD_PATTERNS if heads else PATTERNS)
    except CheckpointError as error:
        found = f"nothing lies at {folder}, and {error}"
        raise _missing(section, reference, found, "a model folder or a Hub id", origin) from None


def _is_path(reference: str) -> bool:
    """Whether a reference can only be a path: Hub ids are `name` or `organisation/name`."""
    return reference.startswith((".", "/", "~")) or reference.count("/") > 1


def _refuse_revision(section: str, reference: str, revision: str | None, origin: RecipeSource) -> None:
    if revision is not None:
        raise origin.refusal(
            f"{section}.revision",
            f"'{revision}'",
            f"no revision, because the model '{reference}' is a local folder",
            f"remove {section}.revision",
        )


def _missing(section: str, reference: str, found: str, expected: str, origin: RecipeSource) -> RecipeError:
    key = f"{section}.model"
    hint = f"correct {key}; a relative path starts at the folder of the recipe"
    return origin.refusal(key, f"'{reference}' ({found})", expected, hint)
