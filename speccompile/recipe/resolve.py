"""Resolve the value of `model:` to a folder with a complete checkpoint: a local folder, or a model of the Hub."""

from pathlib import Path

from speccompile.compiler.checkpoints.facts import read_checkpoint
from speccompile.errors import CheckpointError, RecipeError
from speccompile.plan.plan import ModelPlan
from speccompile.plan.recipe_source import RecipeSource, format_value
from speccompile.recipe.adapter import adapted_folder
from speccompile.recipe.gguf import gguf_folder
from speccompile.recipe.hub import HEAD_PATTERNS, PATTERNS, fetch_snapshot
from speccompile.recipe.pieces import with_tokenizer


def resolve_model(
    section: str,
    reference: str,
    revision: str | None,
    precision: str,
    origin: RecipeSource,
    tokenizer: str | None = None,
    adapter: str | None = None,
) -> ModelPlan:
    """Find and check the model of `section` ("target", "drafter" or "drafter.models.0").

    A folder relative to the recipe comes first; a name that is not a path is then requested from the Hub. Raise
    RecipeError for a model that is in neither, CheckpointError for a folder without a complete checkpoint.
    tokenizer, adapter: as for `resolve_folder`.
    """
    folder, commit = resolve_folder(section, reference, revision, origin, tokenizer=tokenizer, adapter=adapter)
    return model_in(folder, reference, precision, revision, commit)


def model_in(
    folder: Path, reference: str, precision: str, revision: str | None = None, commit: str | None = None
) -> ModelPlan:
    """Return the model in a resolved folder. Raise CheckpointError if it is not a complete checkpoint."""
    files, facts = read_checkpoint(folder)
    return ModelPlan(reference, revision, commit, folder, files, precision, facts)


def resolve_folder(
    section: str,
    reference: str,
    revision: str | None,
    origin: RecipeSource,
    *,
    heads: bool = False,
    tokenizer: str | None = None,
    adapter: str | None = None,
) -> tuple[Path, str | None]:
    """Return the folder that a reference names, and the commit if it comes from the Hub, else None.

    heads: download pickled weights too, as some heads are published. tokenizer: folder, relative to the recipe, of the
    tokenizer for a GGUF file. adapter: folder, relative to the recipe, of an adapter to merge into the model. Raise
    RecipeError, and what `adapted_folder` raises.
    """
    folder, commit = _base_folder(section, reference, revision, origin, heads=heads, tokenizer=tokenizer)
    return (folder if adapter is None else adapted_folder(folder, origin.resolve(adapter))), commit


def _base_folder(
    section: str, reference: str, revision: str | None, origin: RecipeSource, *, heads: bool, tokenizer: str | None
) -> tuple[Path, str | None]:
    folder = origin.resolve(reference)
    described = gguf_folder(folder, None if tokenizer is None else origin.resolve(tokenizer))
    if described is not None:
        _refuse_revision(section, reference, revision, origin)
        return described, None
    if folder.is_dir():
        _refuse_revision(section, reference, revision, origin)
        return with_tokenizer(folder), None
    if folder.exists() or _is_path(reference):
        raise _missing(section, reference, f"{_found(folder)} lies at {folder}", "a model folder", origin)
    found, commit = _fetch(section, reference, revision, folder, origin, heads=heads)
    return with_tokenizer(found), commit


def _fetch(
    section: str, reference: str, revision: str | None, folder: Path, origin: RecipeSource, *, heads: bool
) -> tuple[Path, str]:
    try:
        return fetch_snapshot(reference, revision, HEAD_PATTERNS if heads else PATTERNS)
    except CheckpointError as error:
        found = f"nothing lies at {folder}, and {error}"
        raise _missing(section, reference, found, "a model folder or a Hub id", origin) from None


def _found(path: Path) -> str:
    """Describe what lies at a path that is no folder."""
    if not path.exists():
        return "nothing"
    kinds = {".gguf": "a GGUF file", ".safetensors": "a file of weights alone"}
    return kinds.get(path.suffix.lower(), "a file")


def _is_path(reference: str) -> bool:
    """Return whether a reference can only be a path: Hub ids are `name` or `organisation/name`."""
    return reference.startswith((".", "/", "~")) or reference.count("/") > 1


def _refuse_revision(section: str, reference: str, revision: str | None, origin: RecipeSource) -> None:
    if revision is not None:
        raise origin.refusal(
            f"{section}.revision",
            format_value(revision),
            f"no revision, because the model '{reference}' is a local folder",
            f"remove {section}.revision",
        )


def _missing(section: str, reference: str, found: str, expected: str, origin: RecipeSource) -> RecipeError:
    key = f"{section}.model"
    hint = f"correct {key}; a relative path starts at the folder of the recipe"
    return origin.refusal(key, f"'{reference}' ({found})", expected, hint)
