"""Estimate of the builder's memory for a graph, from its weights, before the build.

Measured with TensorRT-RTX 1.7: the maximum RssAnon of the builder's process over the lowered `verify` of random Llamas
of 0.05 to 8 B parameters in float16, int8, int4 and fp8, and a fused `step`: 0.004 to 6.4 GB of weights in 802 to 9867
parsed layers.

    peak = 0.17 GB + 65 kB for each layer + 1.3 to 1.8 bytes for each byte of weights

    parameters  precision   weights     peak        seconds (two cores)
    0.35 B      float16      0.70 GB     1.6 GB     21
    1.24 B      int4         1.3 GB      2.3 GB     24
    1.24 B      float16      2.5 GB      4.1 GB     19
    3.2 B       int4         2.6 GB      4.9 GB     83
    3.2 B       float16      6.4 GB     10.7 GB     74
    8.0 B       int4         5.2 GB     10.0 GB    204

The parser maps weights and copies none. The builder then copies those of projections that it fuses, which in a Llama
are q, k, v and gate, up; and it holds the whole engine until its last byte is written. No setting changes that: neither
the optimization level nor WEIGHT_STREAMING. A graph without such projections needs less, so one byte of memory per byte
of weights is certain. The other TensorRT, which builds on a GPU, was not measured, and no build of it is refused.
"""

from dataclasses import dataclass
from typing import Any

from speccompile.compiler.engines.limits import MEMORY, Limits
from speccompile.errors import EngineError

COEFFICIENTS = "tensorrt_rtx"
"""The backend for which the estimate holds."""

_IDLE = 36e6  # bytes of a process that has loaded the library and nothing else
_OWN, _LAYER, _COPIES = 0.17e9, 65e3, 1.6

_BITS = {"FLOAT": 32, "INT32": 32, "INT64": 64, "HALF": 16, "BF16": 16, "INT4": 4, "FP4": 4}
"""Bits of the types that do not have 8."""

_STORED = {"float16": 2.0, "int8": 1.2, "int4": 0.8}
"""Precision -> bytes per parameter in a model of 3 B: embeddings stay float16, and in int4 the head has 8 bits."""


@dataclass(frozen=True)
class BuilderMemory:
    """Demand of a build. weights: bytes of all constants of the graph. layers: of the parsed network, if known."""

    weights: float
    layers: int = 0

    @property
    def least(self) -> float:
        """Return the minimum of memory that the builder holds, in bytes."""
        return _IDLE + self.weights

    @property
    def usual(self) -> float:
        """Return the typical memory of the builder, in bytes."""
        return _OWN + _LAYER * self.layers + _COPIES * self.weights

    def check(self, backend: str, limits: Limits) -> None:
        """Raise EngineError for a build that cannot stay below its memory limit."""
        if backend == COEFFICIENTS and self.least > limits.memory:
            raise EngineError(self.describe(limits), hint=memory_hint(limits))

    def describe(self, limits: Limits) -> str:
        """Return a message with the demand and the limit."""
        return (
            f"for {_words(self.weights)} of weights the builder holds at least {_words(self.least)} of memory and as a "
            f"rule {_words(self.usual)}, and it may hold {_words(limits.memory)} ({limits.memory_source})"
        )


def demand_of(network: Any) -> BuilderMemory:
    """Return the demand of a parsed network."""
    constants = [layer.get_output(0) for layer in network if layer.type.name == "CONSTANT"]
    return BuilderMemory(sum(_size(tensor) for tensor in constants), len(network))


def memory_hint(limits: Limits) -> str:
    """Return a hint for a builder that exceeds its memory limit."""
    weights = max(0.0, (limits.memory - _OWN) / _COPIES)
    models = ", ".join(f"{weights / size / 1e9:.2g} B parameters in {word}" for word, size in _STORED.items())
    return (
        f"{_words(limits.memory)} are enough for a model of about {models}: choose a precision with fewer bits, give "
        f"the builder more with ${MEMORY}, or set the engine's `defer: true` and run `speccompile finish` on a machine "
        "with more memory"
    )


def _size(tensor: Any) -> int:
    bits = _BITS.get(tensor.dtype.name, 8)
    for size in tensor.shape:
        bits *= size
    return -(-bits // 8)


def _words(size: float) -> str:
    return f"{size / 1e9:.3g} GB"
