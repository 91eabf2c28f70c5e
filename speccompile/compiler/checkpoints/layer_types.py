"""Kinds of layers that a config lists, one for each layer. An unknown kind is refused before any work."""

from pathlib import Path
from typing import Any

from speccompile.errors import UnsupportedModelError
from speccompile.machine.formats.json_files import wrong

LISTS = ("layer_types", "layers_block_type")
"""Names of the list in configs."""

KNOWN = (
    "full_attention", "sliding_attention", "chunked_attention", "window_attention", "reference_sliding_attention",
    "indexed_attention", "compressed_sparse_attention", "heavily_compressed_attention", "minimax_m3_sparse",
    "linear_attention", "conv", "hybrid", "hybrid_sliding", "moe", "mlp",
    # Names in older checkpoints.
    "attention", "mamba", "recurrent", "deepseek_sparse_attention", "qwen_sparse_attention",
)  # fmt: skip
"""Every kind that a class of transformers has. The probe finds out which of them are supported."""


def check_layer_types(config: dict[str, Any], path: Path) -> None:
    """Raise UnsupportedModelError, naming the layer, for an unknown kind; CheckpointError for a value that is no list.
    config: of the text decoder, in the file `path`."""
    for name in LISTS:
        kinds = config.get(name)
        if kinds is None:
            continue
        if not isinstance(kinds, list):
            raise wrong(path, f"{name}: {kinds!r}", "a list with the kind of every layer")
        for layer, kind in enumerate(kinds):
            if kind not in KNOWN:
                raise UnsupportedModelError(
                    f"{path}: {name}: received {kind!r} for layer {layer}, expected one of {', '.join(KNOWN)}",
                    hint="a kind of layer that transformers does not have cannot be compiled",
                )
