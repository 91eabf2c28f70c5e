"""Notes on rotary frequencies that depend on the length of a sequence."""

from collections.abc import Iterator
from typing import Any

from speccompile.compiler.checkpoints.json_files import CONFIG, read_json_object
from speccompile.compiler.checkpoints.multimodal import TEXT
from speccompile.plan.plan import ModelPlan

_ORIGINAL = "original_max_position_embeddings"


def rope_note(model: ModelPlan, max_length: int) -> str:
    """Return a note if the caches reach beyond the length from which longrope has other factors; else nothing."""
    written = read_json_object(model.folder / CONFIG) or {}
    config = written.get(TEXT) or written
    lengths = {length for length in _switches(config) if length < max_length}
    if not lengths:
        return ""
    return (
        f"'{model.reference}' has longrope: cache.max_length {max_length} is beyond {min(lengths)} positions, so all "
        f"texts have the factors of long ones, as in vLLM and llama.cpp; cache.max_length {min(lengths)} gives the "
        "others"
    )


def _switches(config: dict[str, Any]) -> Iterator[int]:
    """Yield the lengths beyond which a config's longrope has its second list of factors."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kinds = [rope, *(each for each in rope.values() if isinstance(each, dict))] if isinstance(rope, dict) else []
    for kind in kinds:
        length = kind.get(_ORIGINAL) or config.get(_ORIGINAL)
        same = kind.get("long_factor") == kind.get("short_factor")
        if (kind.get("rope_type") or kind.get("type")) in ("longrope", "su") and isinstance(length, int) and not same:
            yield length
