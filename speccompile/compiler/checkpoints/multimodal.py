"""Text decoders of multimodal checkpoints: their part of config and tensors.

config.json describes the decoder in `text_config`, or, as Qwen2.5-VL is published, beside `vision_config`. Tensors lie
in one of three layouts, among those of vision towers and projectors: `language_model.model.*` with
`language_model.lm_head`, as Gemma 3, Mistral 3 and LLaVA are published and transformers 5 writes them again;
`model.language_model.*` with `lm_head`, as Gemma 3n, Gemma 4 and Qwen 3.5 are and transformers wrote all of them from
4.52 on (`model.text_model.*` of Idefics3 and SmolVLM); or `model.layers` and so on beside `visual.*`, as Qwen2.5-VL is.
A causal language model of the decoder alone has `model.*` and `lm_head`.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from speccompile.compiler.checkpoints.json_files import CONFIG
from speccompile.compiler.checkpoints.weights import StoredTensor
from speccompile.errors import CheckpointError, UnsupportedModelError
from speccompile.machine.formats.json_files import wrong

TEXT = "text_config"

TYPES = (
    "gemma3", "gemma3n", "gemma4", "idefics3", "internvl", "lfm2_vl", "llava", "llava_next", "llava_onevision",
    "mistral3", "qwen2_5_vl", "qwen3_5", "qwen3_vl", "smolvlm",
)  # fmt: skip
"""`model_type` of models whose decoder is known to give, on text, the whole model's output."""

CAUSAL = {"qwen2_5_vl_text": "qwen2", "qwen3_vl_text": "qwen3"}
"""`model_type` of a decoder without a causal language model in transformers -> that of the one that computes the same
on text, where a token has one position on all axes."""

_FLAT = {"qwen2_5_vl": "qwen2_5_vl_text"}
"""`model_type` of models whose decoder may be described beside vision_config -> the decoder's."""

PREFIXES = {
    "language_model.model.": "model.",
    "language_model.lm_head.": "lm_head.",
    "model.language_model.": "model.",
    "model.text_model.": "model.",
    **{each: each for each in ("model.layers.", "model.embed_tokens.", "model.norm.", "lm_head.")},
}
"""Prefix of names in the checkpoint -> prefix in the decoder."""

_EMBEDDING = "model.embed_tokens.weight"


def text_config(config: dict[str, Any], folder: Path) -> dict[str, Any] | None:
    """Return the text decoder's config in a multimodal checkpoint's config; None for a plain language model.

    Raise UnsupportedModelError for a multimodal model whose decoder has not been compared with the whole model.
    """
    text, model_type = config.get(TEXT), config.get("model_type")
    if text is None and model_type in _FLAT and "vision_config" in config:
        text = {key: value for key, value in config.items() if key not in _WHOLE} | {"model_type": _FLAT[model_type]}
    if text is None:
        return None
    if not isinstance(text, dict):
        raise wrong(folder / CONFIG, f"{TEXT}: {text!r}", "a JSON object")
    if model_type not in TYPES:
        raise UnsupportedModelError(
            f"{folder / CONFIG}: received a multimodal checkpoint of type {model_type!r}, expected a language model, "
            f"or one of {', '.join(TYPES)}, whose text decoder is compiled",
            hint="save the language model of the checkpoint as a checkpoint of its own",
        )
    return causal_config(text)


_WHOLE = ("architectures", "vision_config", "quantization_config")


def causal_config(text: Mapping[str, Any]) -> dict[str, Any]:
    """Return a decoder's config as that of a causal language model."""
    found = dict(text)
    if (kind := CAUSAL.get(str(text.get("model_type")))) is None:
        return found
    found["model_type"] = kind
    for key in ("rope_parameters", "rope_scaling"):
        if isinstance(rope := found.get(key), dict):
            kept = {name: value for name, value in rope.items() if not name.startswith("mrope")}
            found[key] = {name: "default" if value == "mrope" else value for name, value in kept.items()}
    return found


def decoder_names(names: Iterable[str]) -> dict[str, str]:
    """Return name in a multimodal checkpoint -> name in the causal language model of its decoder. Tensors of vision
    towers, projectors, and heads for later tokens are omitted."""
    return {
        name: new + name.removeprefix(old) for name in names for old, new in PREFIXES.items() if name.startswith(old)
    }


def decoder_tensors(stored: Mapping[str, StoredTensor], folder: Path) -> dict[str, StoredTensor]:
    """Return the decoder's tensors, by their names in the checkpoint. Raise CheckpointError if there is no
    embedding."""
    names = decoder_names(stored)
    if _EMBEDDING not in names.values():
        layouts = " or ".join(old + _EMBEDDING.removeprefix(new) for old, new in PREFIXES.items() if new == "model.")
        raise CheckpointError(
            f"{folder}: received {len(stored)} tensors without the embedding of a text decoder, expected {layouts}",
            hint="save the language model of the checkpoint as a checkpoint of its own",
        )
    return {name: stored[name] for name in names}


def embedding_rows(tensors: Mapping[str, StoredTensor]) -> int:
    """Return the number of tokens in the embedding among a decoder's tensors."""
    return next(tensors[name].shape[0] for name, new in decoder_names(tensors).items() if new == _EMBEDDING)
