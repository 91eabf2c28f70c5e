"""Rotary position embeddings of a GGUF file, by the names of transformers."""

import struct
from typing import Any

from speccompile.compiler.checkpoints.gguf.metadata import shortest, shown
from speccompile.compiler.checkpoints.gguf.model import GgufPart
from speccompile.compiler.checkpoints.gguf.reader import corrupt
from speccompile.errors import UnsupportedModelError

FACTORS = "rope_freqs.weight"

Config = dict[str, Any]


def read_rope(model: GgufPart, size: int, theta: float = 10000.0) -> Config:
    """Return `rope_parameters` of transformers. size: numbers of a head that are rotated; theta: without a key for it.
    Raise UnsupportedModelError for a scaling that is not read, CheckpointError for factors that cannot be."""
    metadata, key = model.metadata, model.key
    metadata.require(key("rope.dimension_count"), size)
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


def _factors(model: GgufPart, size: int, config: Config) -> Config:
    """Return the scaling by the factors that the file has for the frequencies, as Llama 3.1's are stored: transformers'
    longrope, which divides by a list of factors, with one list for all lengths."""
    path, tensor = model.tensors[FACTORS]
    if config["rope_type"] != "default":
        raise UnsupportedModelError(
            f"{path}: received tensor '{FACTORS}' beside {model.key('rope.scaling.type')} {config['rope_type']}, "
            "expected one of both",
            hint="use the model's safetensors",
        )
    if tensor.type != "F32" or tensor.shape != (size // 2,):
        raise corrupt(path, f"tensor '{FACTORS}' of shape {list(tensor.shape)} in {tensor.type}", f"F32 [{size // 2}]")
    with path.open("rb") as file:
        file.seek(tensor.offset)
        data = file.read(tensor.size)
    if len(data) < tensor.size:
        raise corrupt(path, f"{len(data)} bytes of tensor '{FACTORS}'", f"{tensor.size}")
    factors = [shortest(each) for each in struct.unpack(f"<{size // 2}f", data)]
    if not all(0 < each < float("inf") for each in factors):
        raise corrupt(path, f"tensor '{FACTORS}' with factors such as {min(factors)}", "finite numbers above 0")
    positions = model.metadata.count(model.key("context_length"))
    return {
        "rope_type": "longrope", "short_factor": factors, "long_factor": factors, "attention_factor": 1.0,
        "factor": 1.0, "original_max_position_embeddings": positions,
    }  # fmt: skip
