"""Attention windows that a config describes, without its model: what a plan says of caches before the probe has looked.

The probe finds the windows that count. Where a config leaves its model's class to say which layers have one, the rows
below say it; a layer of any other class is taken to see all tokens, which is the larger cache.
"""

from collections.abc import Mapping
from typing import Any

from speccompile.compiler.checkpoints.layer_types import LISTS

SLIDING, CHUNKED = ("sliding_attention", "hybrid_sliding"), "chunked_attention"

EVERY_LAYER = ("mistral", "mixtral", "ministral", "phi3", "starcoder2")
"""Model types whose `sliding_window`, where it is a number, is every layer's."""

PATTERNS = {
    "gemma2": 2, "gemma3": 6, "gemma3_text": 6, "gemma3n_text": 5, "gemma4_text": 6, "cohere2": 4, "gpt_oss": 2,
    "exaone4": 4, "olmo3": 4,
}  # fmt: skip
"""Model type -> n, where every n-th layer sees all tokens and the others a window, if `sliding_window_pattern` says
nothing else."""


def attention_windows(config: Mapping[str, Any], layers: int) -> tuple[int, ...]:
    """Return the number of latest positions that each layer sees, 0 for all. config: of the text decoder."""
    window, chunk = (_count(config.get(name)) for name in ("sliding_window", "attention_chunk_size"))
    kinds = next((config[name] for name in LISTS if isinstance(config.get(name), list)), None)
    if kinds is not None:
        sizes = dict.fromkeys(SLIDING, window) | {CHUNKED: chunk}
        return tuple(sizes.get(kind, 0) for kind in kinds[:layers]) + (0,) * (layers - len(kinds))
    return tuple(window if _slides(config, layer) else 0 for layer in range(layers))


def _slides(config: Mapping[str, Any], layer: int) -> bool:
    """Return whether a layer of a config without a list of kinds sees a window."""
    kind, pattern = config.get("model_type"), config.get("sliding_window_pattern")
    if config.get("use_sliding_window") is not None:  # Qwen
        first = config.get("max_window_layers", 28)
        return bool(config["use_sliding_window"]) and isinstance(first, int) and layer >= first
    if kind in EVERY_LAYER:
        return True
    if isinstance(pattern, str) and pattern:  # as "LLLG" of EXAONE 4
        return pattern[layer % len(pattern)] == "L"
    every = pattern if isinstance(pattern, int) else PATTERNS.get(str(kind), 0)
    return every > 0 and (layer + 1) % every != 0


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
