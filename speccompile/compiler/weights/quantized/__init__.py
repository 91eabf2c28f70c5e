"""Pre-quantized weights of a checkpoint, under the names and shapes of the floating-point model.

One file per format, with its layout and formula; all are `Scaled` weights, which read the packed numbers of the
requested outputs. Formats of 4 bits also implement `LazyWeight.int4`.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from speccompile.compiler.checkpoints.quantization import Quantization, missing_tensors_error
from speccompile.compiler.weights.quantized import awq, compressed, fp8, gptq, mxfp4
from speccompile.compiler.weights.quantized.packed import Packed
from speccompile.compiler.weights.quantized.tensor_pool import CheckpointTensors, find_modules
from speccompile.compiler.weights.source import LazyWeight

_FORMATS: dict[str, Callable[[CheckpointTensors], dict[str, LazyWeight]]] = {
    "gptq": partial(find_modules, gptq.read_weight),
    "awq": partial(find_modules, awq.read_weight),
    "compressed-tensors": compressed.find,
    "fp8": fp8.find,
    "mxfp4": mxfp4.find,
}
"""Method, as in `checkpoints.quantization.METHODS` -> function that returns the weights of a checkpoint."""


def dequantized(
    folder: Path, said: Quantization, weights: Mapping[str, LazyWeight], others: Mapping[str, Packed]
) -> tuple[dict[str, LazyWeight], set[str]]:
    """Return the weights that are stored in several tensors of a checkpoint, and the names of those tensors.

    weights and others: all tensors of the checkpoint, those of floats and the rest. Raise CheckpointError, naming
    tensor and shape, for tensors that do not match the config.
    """
    stock = CheckpointTensors(folder, said, weights, others)
    found = _FORMATS[said.method](stock)
    if not found:
        raise missing_tensors_error(folder, said, "no tensor of that kind", f"weights as {said.text}")
    return found, stock.used
