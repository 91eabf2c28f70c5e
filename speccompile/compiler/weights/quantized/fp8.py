"""fp8: a float8 weight [N, K], or [E, N, K] of experts, with separate scales; see `tiled`.

The scales of `X.weight` are `X.weight_scale_inv` as in DeepSeek and Qwen, `X.weight_scale`, or under the names that
transformers' FineGrainedFP8HfQuantizer renames to the first.
"""

from speccompile.compiler.weights.quantized.packed import Packed
from speccompile.compiler.weights.quantized.tensor_pool import FLOATS8, CheckpointTensors
from speccompile.compiler.weights.quantized.tiled import tiled
from speccompile.compiler.weights.source import LazyWeight

ACTIVATIONS = (
    "activation_scale", "input_scale", "output_scale", "qscale_act", "k_scale", "v_scale", "q_scale",
)  # fmt: skip
"""Scales of activations and caches, which stay floats."""


def find(stock: CheckpointTensors) -> dict[str, LazyWeight]:
    found = {name: _weight(stock, name) for name in stock.floats8()}
    for name in ACTIVATIONS:
        for joint in (".", "_"):
            for before in stock.names_with_suffix(f"{joint}{name}"):
                stock.pop(f"{before}{joint}{name}")
    return found


def _weight(stock: CheckpointTensors, name: str) -> LazyWeight:
    numbers, module = stock.packed(name, *FLOATS8), name.removesuffix(".weight")
    names = (f"{name}_scale_inv", f"{name}_scale", f"{module}.scale", f"{module}.qscale_weight")
    scales, chosen = _first(stock, names)
    return tiled(stock, chosen, numbers, scales)


def _first(stock: CheckpointTensors, names: tuple[str, ...]) -> tuple[LazyWeight | Packed | None, str]:
    for name in names:
        tensor = stock.pop(name)
        if tensor is not None:
            return tensor, name
    return None, names[0]
