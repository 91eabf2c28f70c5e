"""Rotary position embeddings of a GGUF file, by the names of transformers."""

import struct
from pathlib import Path
from typing import Any

from speccompile.compiler.checkpoints.gguf.metadata import shortest, shown
from speccompile.compiler.checkpoints.gguf.model import GgufPart
from speccompile.errors import UnsupportedModelError
from speccompile.machine.formats.safetensors import corrupt

FACTORS = "rope_freqs.weight"
LONG, SHORT = "rope_factors_long.weight", "rope_factors_short.weight"
"""Factors of longrope: beyond the original length, and up to it."""

Config = dict[str, Any]


def read_rope(model: GgufPart, size: int, theta: float = 10000.0) -> Config:
    """Return `rope_parameters` of transformers. size: numbers of a head that are rotated; theta: without a key for it.
    Raise UnsupportedModelError for a scaling that is not read, CheckpointError for factors that cannot be."""
    metadata, key = model.metadata, model.key
    metadata.require(key("rope.dimension_count"), size)
    if LONG in model.tensors or SHORT in model.tensors:
        return _longrope(model, size, theta)
    metadata.require(key("rope.scaling.attn_factor"), 1.0)
    config: Config = {"rope_type": "default", "rope_theta": metadata.number(key("rope.freq_base"), theta)}
    scaling = metadata.text(key("rope.scaling.type"), "none")
    if key("rope.scale_linear") in metadata and scaling == "none":
        scaling, factor = "linear", metadata.number(key("rope.scale_linear"))
    else:
        factor = metadata.number(key("rope.scaling.factor"), 1.0)
    if scaling == "linear" and factor != 1:
        config |= {"rope_type": "linear", "factor": factor}
    elif scaling == "yarn":
        config |= {"rope_type": "yarn", "factor": factor}
        config["original_max_position_embeddings"] = metadata.count(key("rope.scaling.original_context_length"))
    elif scaling not in ("none", "linear") or (scaling == "none" and factor != 1):
        raise UnsupportedModelError(
            f"{metadata.path}: {key('rope.scaling.type')}: received {shown(scaling)} with factor {factor:g}, expected "
            "none, linear or yarn",
            hint="this scaling is not read from GGUF; use the model's safetensors",
        )
    return config | _factors(model, size, config) if FACTORS in model.tensors else config


def _longrope(model: GgufPart, size: int, theta: float) -> Config:
    """Return the scaling of Phi 3's long models: two lists of factors for the frequencies, one factor for both."""
    metadata, key = model.metadata, model.key
    for name in (LONG, SHORT):
        model.tensor(name)
    scaling = metadata.text(key("rope.scaling.type"), "longrope")
    if scaling not in ("longrope", "none", "yarn") or FACTORS in model.tensors:
        raise _beside(model, model.tensors[LONG][0], LONG, FACTORS if FACTORS in model.tensors else scaling)
    metadata.claim([key("rope.scaling.factor")])  # llama.cpp reads the lists alone
    original = metadata.count(key("rope.scaling.original_context_length"))
    return {
        "rope_type": "longrope", "rope_theta": metadata.number(key("rope.freq_base"), theta),
        "short_factor": _list_of_factors(model, SHORT, size), "long_factor": _list_of_factors(model, LONG, size),
        "attention_factor": metadata.number(key("rope.scaling.attn_factor"), 1.0),
        "factor": max(metadata.count(key("context_length")) / original, 1.0),
        "original_max_position_embeddings": original,
    }  # fmt: skip


def _factors(model: GgufPart, size: int, config: Config) -> Config:
    """Return the scaling by the factors that the file has for the frequencies, as Llama 3.1's are stored: transformers'
    longrope, which divides by a list of factors, with one list for all lengths."""
    if config["rope_type"] != "default":
        raise _beside(model, model.tensors[FACTORS][0], FACTORS, str(config["rope_type"]))
    factors = _list_of_factors(model, FACTORS, size)
    positions = model.metadata.count(model.key("context_length"))
    return {
        "rope_type": "longrope", "short_factor": factors, "long_factor": factors, "attention_factor": 1.0,
        "factor": 1.0, "original_max_position_embeddings": positions,
    }  # fmt: skip


def _list_of_factors(model: GgufPart, name: str, size: int) -> list[float]:
    """Return the factors in a tensor, one for two numbers of a head."""
    path, tensor = model.tensors[name]
    if tensor.type != "F32" or tensor.shape != (size // 2,):
        raise corrupt(path, f"tensor '{name}' of shape {list(tensor.shape)} in {tensor.type}", f"F32 [{size // 2}]")
    with path.open("rb") as file:
        file.seek(tensor.offset)
        data = file.read(tensor.size)
    if len(data) < tensor.size:
        raise corrupt(path, f"{len(data)} bytes of tensor '{name}'", f"{tensor.size}")
    factors = [shortest(each) for each in struct.unpack(f"<{size // 2}f", data)]
    if not all(0 < each < float("inf") for each in factors):
        raise corrupt(path, f"tensor '{name}' with factors such as {min(factors)}", "finite numbers above 0")
    return factors


def _beside(model: GgufPart, path: Path, name: str, other: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{path}: received tensor '{name}' beside {model.key('rope.scaling.type')} {other}, expected one of both",
        hint="use the model's safetensors",
    )
