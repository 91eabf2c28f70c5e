"""The bundle of a model that has no recipe: found in the cache, or built there once."""

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from speccompile import __version__
from speccompile.bundle.manifest import FORMAT, canonical_json
from speccompile.cli.exit_codes import Interrupted
from speccompile.errors import BundleError, CheckpointError, UsageError
from speccompile.machine.plain_files import path_text
from speccompile.progress import LOGGER

if TYPE_CHECKING:
    from speccompile.bundle.cache import FolderCache
    from speccompile.plan.plan import Plan
    from speccompile.recipe.model_recipe import ModelRecipe
    from speccompile.recipe.model_request import ModelRequest
    from speccompile.runtime import Bundle

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

_BUNDLE = "bundle"
"""Name of the bundle's folder in an entry of the cache."""

FAST = "int4"
"""Precision of --fast."""
SECONDS, SECONDS_A_GIGABYTE = 15, 190
"""Seconds of a build with its proof, and in addition for each GB of weights: the demo takes 15, 8 B in bfloat16 51
minutes (two cores)."""

OPTIONS = (
    click.option(
        "--drafter", metavar="D", help="A drafter's folder or Hub id, or a drafting method; none for no drafts."
    ),
    click.option(
        "--precision",
        metavar="P",
        help="Of the target's weights: float32, bfloat16, int8 or int4; stored for the codes of a GGUF file.",
    ),
    click.option("--tokenizer", metavar="DIR", help="Folder of the tokenizer to take for a GGUF file."),
    click.option("--fast", is_flag=True, help=f"The same as --precision {FAST}."),
)


@dataclass(frozen=True)
class ModelOptions:
    """Options that say how a model without a recipe is built; None for absent ones."""

    drafter: str | None = None
    precision: str | None = None
    tokenizer: str | None = None
    fast: bool = False

    def request(self, model: str, *, sampling: bool, images: bool = False) -> "ModelRequest":
        """Return the request for a model. Raise UsageError for options that contradict each other, and for a reference
        that is no model."""
        from speccompile.recipe.model_request import ModelRequest

        for option, value in (("--drafter", self.drafter), ("--precision", self.precision)):
            if value is not None and not value.strip():
                raise UsageError(
                    f"{option}: received an empty value, expected a word", hint="leave it out for the default"
                )
        if self.fast and self.precision not in (None, FAST):
            raise UsageError(
                f"received --fast and --precision {self.precision}, expected one of them", hint="leave one out"
            )
        return ModelRequest(
            model, self.drafter, FAST if self.fast else self.precision, sampling, self.tokenizer, images
        )

    def refuse(self, received: str, reason: str, hint: str) -> None:
        """Raise UsageError, for the first option that is given, where the argument is no model."""
        given = {"--drafter": self.drafter, "--precision": self.precision, "--tokenizer": self.tokenizer}
        if wrong := [name for name, value in (given | {"--fast": self.fast or None}).items() if value is not None]:
            raise UsageError(f"received {wrong[0]} for {received}, expected it for a model: {reason}", hint=hint)

    def refuse_for_recipe(self, recipe: str) -> None:
        """Raise UsageError for the first option that is given."""
        self.refuse(
            f"the recipe {recipe}", "a recipe has keys for that", "use --set, as in --set precision.target=int4"
        )


def model_options(command: F) -> F:
    """Add the options that say how a model without a recipe is built. The command gets them as `built_as`."""

    @wraps(command)
    def collected(
        *, drafter: str | None, precision: str | None, tokenizer: str | None, fast: bool, **others: Any
    ) -> Any:
        return command(**others, built_as=ModelOptions(drafter, precision, tokenizer, fast))

    for option in reversed(OPTIONS):
        collected = option(collected)
    return cast(F, collected)


@contextmanager
def open_model(
    model: str,
    built_as: ModelOptions,
    *,
    sampling: bool,
    threads: int | None,
    prove: bool = True,
    images: Sequence[str] = (),
) -> "Iterator[Bundle]":
    """Yield an open bundle: the one in the folder `model`, or that of a model, which is built if the cache has none.

    images: files of pictures; a model's bundle is then built to see them. Raise UsageError, PromptError for a file that
    is no picture, and the errors of building and opening."""
    from speccompile.bundle.reader import is_bundle
    from speccompile.extras import naming_extra
    from speccompile.runtime import Bundle
    from speccompile.runtime.images.decode import read_picture

    for path in images:  # before a build, which takes minutes
        read_picture(path, "--image")
    if is_bundle(Path(model)):
        built_as.refuse(f"the bundle {model}", "a bundle is built already", "leave it out, or give the model's folder")
        yield Bundle.open(Path(model), threads=threads)
        return
    with naming_extra("building a model", instead="give the folder of a bundle, which runs without it"):
        request = built_as.request(model, sampling=sampling, images=bool(images))
    with _cached(request, prove=prove) as folder:
        yield Bundle.open(folder, threads=threads)


@contextmanager
def _cached(request: "ModelRequest", *, prove: bool) -> Iterator[Path]:
    from speccompile.bundle.cache import BUNDLES, FolderCache
    from speccompile.bundle.reader import open_bundle

    cache, key = FolderCache.named(BUNDLES), _key(request, prove=prove)
    digest = hashlib.sha256(canonical_json(key)).hexdigest()
    if not cache.limit:
        raise UsageError(
            "received $SPECCOMPILE_CACHE_LIMIT_GB 0, which leaves no place for the bundle of a model",
            hint=f"raise it, or build a bundle of its own: speccompile build {request.model}",
        )
    with _entered(cache.open_entry(digest, "bundle", verify=False), cache, request) as found:
        if found is not None:
            try:
                open_bundle(found[0] / _BUNDLE, verify=False)
            except BundleError as error:
                LOGGER.warning("note: the cached bundle of %s cannot be opened: %s", request.model, error)
            else:
                yield found[0] / _BUNDLE
                return
    with _entered(cache.add_entry(digest, {"key": key}), cache, request) as part:
        build_model(request, part / _BUNDLE, prove=prove, for_text=True)
    with cache.open_entry(digest, "bundle", verify=False) as found:
        if found is None:
            raise UsageError(
                f"the bundle of {request.model} takes more than $SPECCOMPILE_CACHE_LIMIT_GB ({cache.limit / 1e9:g})",
                hint=f"raise it, or build a bundle of its own: speccompile build {request.model}",
            )
        yield found[0] / _BUNDLE


@contextmanager
def _entered(opening: AbstractContextManager[T], cache: "FolderCache", request: "ModelRequest") -> Iterator[T]:
    """Yield an entry of the cache. Raise UsageError for a cache whose folder cannot be used."""
    with ExitStack() as stack:
        try:
            entry = stack.enter_context(opening)
        except OSError as error:
            raise UsageError(
                f"received the cache folder {cache.folder} ({error.strerror}), expected one that can be written, for "
                "the bundle of a model",
                hint="set $SPECCOMPILE_CACHE_DIR to another folder, or build a bundle of its own: speccompile build "
                f"{request.model}",
            ) from error
        yield entry


def _key(request: "ModelRequest", *, prove: bool) -> dict[str, Any]:
    """Return the key of a model's bundle: its options, the files of the model and of drafters, and this version."""
    from speccompile.recipe.model_request import is_model, model_files

    files = [[path_text(path), path.stat().st_size, path.stat().st_mtime_ns] for path in model_files(request)]
    references = [each for each in (request.model, request.drafter) if each and is_model(each)]
    commits = [_commit(each) for each in references if not Path(each).expanduser().exists()]
    names = {"model": request.model, "drafter": request.drafter, "folder": request.folder}
    names |= {"tokenizer": request.tokenizer} if request.tokenizer else {}
    options: dict[str, Any] = {key: name and path_text(name) for key, name in names.items()}
    options |= {"precision": request.precision, "sampling": request.sampling, "prove": prove}
    options |= {"images": True} if request.images else {}
    return options | {"files": files, "commits": commits, "speccompile": __version__, "format": FORMAT}


def _commit(reference: str) -> str:
    """Return the commit that a Hub id stands for. Raise CheckpointError, naming the id."""
    from speccompile.recipe.hub import fetch_snapshot

    try:
        return fetch_snapshot(reference, None)[1]
    except CheckpointError as error:
        raise CheckpointError(f"received '{reference}', which is no folder, and {error}", hint=error.hint) from None


def build_model(
    request: "ModelRequest",
    output: Path | None,
    *,
    overrides: Sequence[str] = (),
    prove: bool = True,
    for_text: bool = False,
    **settings: Any,
) -> Path:
    """Build the bundle of a model, with the recipe that was made for it inside, and return its folder. output: by
    default build/NAME. overrides: of that recipe. for_text: prompts will be texts, so a model
    without a tokenizer is refused before the work. settings: of `compiler.build.build`."""
    from speccompile.compiler.from_recipe import build_plan
    from speccompile.recipe.model_recipe import make_model_recipe

    made = make_model_recipe(request, overrides=overrides)
    if for_text and not made.plan.target.facts.tokenizer:
        remedy = "name its folder with --tokenizer" if request.gguf_files else "copy it beside the weights"
        raise UsageError(
            f"{request.model}: received a model without tokenizer.json, expected one: prompts are texts",
            hint=f"{remedy}; or speccompile build {request.model}, then speccompile generate --token-ids, which needs "
            "none",
        )
    output = output or Path("build") / made.plan.name
    _log_estimate(made.plan)
    start = time.perf_counter()
    with keeping_steps(use_build_cache=settings.get("use_build_cache", True)):
        folder = build_plan(made.plan, output, prove=prove, notes=made.notes, recipe=made.text, **settings)
    LOGGER.info("built in %.0f s", time.perf_counter() - start)
    if prove:
        _log_quality(folder, made)
    return folder


@contextmanager
def keeping_steps(*, use_build_cache: bool) -> Iterator[None]:
    """Say what is kept of an interrupted build."""
    from speccompile.bundle.cache import BUILDS, FolderCache

    try:
        yield
    except KeyboardInterrupt as interrupt:
        if not use_build_cache or not FolderCache.named(BUILDS).limit:
            raise
        words = "no bundle was written; steps that had ended are in the cache, where the next build finds them"
        raise Interrupted(words) from interrupt


def _log_estimate(plan: "Plan") -> None:
    from speccompile.recipe.resource_estimate import estimate_resources
    from speccompile.recipe.resources import gigabytes

    weights = sum(model.facts.weight_bytes for model in (plan.target, *plan.drafter.models)) / 1e9
    seconds = SECONDS + SECONDS_A_GIGABYTE * weights
    took = f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.0f} s"
    disk = gigabytes(estimate_resources(plan).disk)
    LOGGER.info("building %s: about %s of disk and, on two fast cores, about %s", plan.name, disk, took)


def _log_quality(folder: Path, made: "ModelRecipe") -> None:
    """Log what a quantized precision costs, as the build has measured it."""
    from speccompile.bundle.reader import open_bundle

    quality = open_bundle(folder, verify=False).proof.get("quality")
    precision = made.plan.target.precision
    if not quality or precision not in ("int8", "int4", "stored"):
        return
    for row in quality["engines"]:
        LOGGER.info(
            "precision %s: perplexity %.4g, %.4g in float32; the same best token in %.1f %% of %d places",
            precision, row["perplexity"], quality["perplexity"], 100 * row["same_argmax"], quality["kl_tokens"],
        )  # fmt: skip
