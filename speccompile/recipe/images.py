"""Decide the pictures of a target, and refuse what does not go with them."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from speccompile.bundle.media import PROOF_SHAPES
from speccompile.compiler.checkpoints.image_numbers import PROCESSOR_FILES
from speccompile.compiler.checkpoints.images import read_images
from speccompile.compiler.checkpoints.json_files import CONFIG
from speccompile.compiler.checkpoints.multimodal import TYPES
from speccompile.contract import FLOAT_CACHE
from speccompile.drafters import DRAFTING_METHODS
from speccompile.machine.formats.image_settings import ENCODER_PRECISION, ImageSettings
from speccompile.machine.formats.json_files import read_json_object
from speccompile.plan.caches import CachePlan
from speccompile.plan.plan import DrafterPlan, EnginePlan, ModelPlan
from speccompile.recipe.caches import cache_key
from speccompile.recipe.schema import Recipe
from speccompile.runtime.images.families import FAMILIES

ROOM = 32
"""Tokens beside a picture's for which a cache has to have room."""


def decide_images(
    recipe: Recipe, target: ModelPlan, draft: DrafterPlan, engines: Iterable[EnginePlan]
) -> ImageSettings | None:
    """Return the pictures of a target, None if the recipe asks for none. Raise RecipeError for what they do not go
    with, UnsupportedModelError and CheckpointError as `read_images`."""
    if not recipe.target.images:
        _refuse_without_images(recipe)
        return None
    origin = recipe.origin
    precision = recipe.target.encoder_precision or ENCODER_PRECISION
    if recipe.prove and recipe.prove.max_encoder_divergence is not None and precision == ENCODER_PRECISION:
        raise origin.refusal(
            "prove.max_encoder_divergence", str(recipe.prove.max_encoder_divergence), "it only with another precision",
            "set target.encoder_precision to bfloat16 or int8, or remove prove.max_encoder_divergence",
        )  # fmt: skip
    if target.facts.model_type not in TYPES and not _has_tower(target.folder):
        received, expected = f"true, but '{target.reference}' is no multimodal model", "false"
        raise origin.refusal("target.images", received, expected, "remove target.images")
    images = replace(read_images(target.folder), precision=precision)
    for engine in engines:
        if engine.backend == "onnxruntime" and engine.provider != "cpu":
            received = f"true and the engine '{engine.name}', {engine.backend} on {engine.provider}"
            expected = "engines of onnxruntime on cpu, tensorrt_rtx and tensorrt: pictures are not compiled for others"
            raise origin.refusal("target.images", received, expected, "remove target.images, or the engine")
        if engine.provider != "cpu" and precision != ENCODER_PRECISION:
            received = f"'{precision}' and the engine '{engine.name}', {engine.backend}"
            expected = f"'{ENCODER_PRECISION}': engines of TensorRT encode pictures in it"
            raise origin.refusal("target.encoder_precision", received, expected, "remove target.encoder_precision")
    for key, found in (("target.adapter", recipe.target.adapter), ("adapters", recipe.adapters)):
        if found is not None:
            raise origin.refusal(key, "it beside target.images", "one of them", f"remove {key}, or target.images")
    _check_drafter(recipe, draft, images)
    return images


def _has_tower(folder: Path) -> bool:
    """Return whether a model has a vision tower, which may be one that is not compiled."""
    return "vision_config" in (read_json_object(folder / CONFIG) or {})


def _refuse_without_images(recipe: Recipe) -> None:
    """Raise RecipeError for keys about the encoder of pictures of a target that sees none."""
    written = recipe.target.encoder_precision, recipe.prove and recipe.prove.max_encoder_divergence
    for key, value in zip(("target.encoder_precision", "prove.max_encoder_divergence"), written, strict=True):
        if value is not None:
            expected = "it only with target.images: true"
            raise recipe.origin.refusal(key, str(value), expected, f"set target.images to true, or remove {key}")


def check_images(
    recipe: Recipe, images: ImageSettings | None, caches: CachePlan, max_length: int, chunk: int, least: int
) -> None:
    """Raise RecipeError for caches in which no picture has room, or whose rows are rounded, and for chunks of a prompt
    of fewer than `least` tokens, into which no picture goes whose rows see each other."""
    if images is None:
        return
    if caches.target != FLOAT_CACHE:
        key = cache_key("cache", recipe.cache)
        expected = "float beside target.images: pictures are not proven with rounded rows"
        raise recipe.origin.refusal(key, caches.target, expected, f"remove {key}, or target.images")
    family = FAMILIES[images.family](images)
    rows = min(family.n_rows(family.grid(*shape)) for shape in PROOF_SHAPES)
    if max_length < rows + ROOM:
        expected = f"at least {rows + ROOM}: the smallest picture has {rows} tokens"
        raise recipe.origin.refusal(
            "cache.max_length", str(max_length), expected, f"set cache.max_length to {rows + ROOM}"
        )
    if chunk < least:
        expected = f"at least {least}: all rows of a picture see each other, and are read together"
        hint = f"set cache.prefill_chunk to {least}, or target.images to false"
        raise recipe.origin.refusal("cache.prefill_chunk", str(chunk), expected, hint)


def least_chunk(images: ImageSettings | None, overlap: int) -> int:
    """Return the number of tokens that the longest chunk of a prompt has at least: a picture's, if its rows see each
    other, and the last `overlap` of the chunk before."""
    return images.tile_rows + overlap if images is not None and images.both_ways else 1


def with_processor(target: ModelPlan) -> ModelPlan:
    """Return the target with the files of its image processor among those that a build reads."""
    present = (Path(name) for name in PROCESSOR_FILES if (target.folder / name).is_file())
    return replace(target, files=(*target.files, *present))


def _check_drafter(recipe: Recipe, draft: DrafterPlan, images: ImageSettings) -> None:
    origin, method = recipe.origin, DRAFTING_METHODS[draft.kind]
    known = ", ".join(kind for kind, each in DRAFTING_METHODS.items() if each.with_images)
    if not method.with_images or draft.cascade is not None or draft.inner is not None:
        received = f"'{draft.kind}'" if not method.with_images else f"'{draft.kind}' with a lookup beside it"
        expected = f"{known}, alone: other drafters would read the rows of pictures, which is not compiled yet"
        raise origin.refusal(
            "drafter.kind", f"{received} beside target.images", expected, "set drafter.kind to prompt_lookup"
        )
    reason = method.on_axes(draft) if images.axes and method.on_axes is not None else None
    if reason is not None:
        received = f"'{draft.kind}' for a target whose pictures have positions on three axes"
        raise origin.refusal("drafter.kind", received, reason, "set drafter.kind to prompt_lookup")
    head = draft.head
    if method.reads_images and head is not None and head.layers and head.layers.hidden_size != head.hidden_size:
        received = f"a head of width {head.layers.hidden_size}, which embeds tokens in rows of its own"
        expected = f"one of width {head.hidden_size}, which reads the rows of pictures in place of embeddings"
        raise origin.refusal("drafter.model", received, expected, "remove target.images, or take another head")
    if draft.tokenizer is not None:
        expected = "a drafter with the target's own tokens beside target.images"
        raise origin.refusal("drafter.tokenizer", "'map'", expected, "remove target.images, or take another drafter")
    for model in draft.models:
        if model.facts.vocabulary_size <= images.token_id:
            received = f"'{model.reference}' with {model.facts.vocabulary_size} tokens"
            expected = f"a drafter that knows the placeholder of pictures, token {images.token_id}"
            raise origin.refusal("drafter.model", received, expected, "set drafter.kind to prompt_lookup")
