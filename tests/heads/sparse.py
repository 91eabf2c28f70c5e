"""Checkpoints of any size whose data take no room: files with holes."""

import json
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

BYTES = {"BF16": 2, "F16": 2, "F32": 4, "I64": 8}


def write_sparse(
    path: Path,
    shapes: Mapping[str, tuple[int, ...]],
    dtype: str,
    others: Mapping[str, tuple[str, tuple[int, ...]]] | None = None,
) -> None:
    """Write a safetensors file of zeros. others: name -> dtype and shape of tensors with another dtype."""
    header, end = {}, 0
    for name, (kind, shape) in ({name: (dtype, shape) for name, shape in shapes.items()} | dict(others or {})).items():
        size = prod(shape) * BYTES[kind]
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)


def llama_shapes(config: Mapping[str, Any], inputs: int | None = None) -> dict[str, tuple[int, ...]]:
    """Return the tensors of a Llama with this config. inputs: width of the rows that attention reads, by default its
    own."""
    width, mlp = config["hidden_size"], config["intermediate_size"]
    keys, read = width // config["num_attention_heads"] * config["num_key_value_heads"], inputs or width
    layer = {
        "self_attn.q_proj": (width, read), "self_attn.k_proj": (keys, read), "self_attn.v_proj": (keys, read),
        "self_attn.o_proj": (width, width), "mlp.gate_proj": (mlp, width), "mlp.up_proj": (mlp, width),
        "mlp.down_proj": (width, mlp), "input_layernorm": (width,), "post_attention_layernorm": (width,),
    }  # fmt: skip
    shapes: dict[str, tuple[int, ...]] = {
        f"model.layers.{index}.{name}.weight": shape
        for index in range(config["num_hidden_layers"])
        for name, shape in layer.items()
    }
    table = (config["vocab_size"], width)
    return shapes | {"model.embed_tokens.weight": table, "model.norm.weight": (width,), "lm_head.weight": table}
