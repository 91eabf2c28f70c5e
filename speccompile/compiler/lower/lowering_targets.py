"""Lowering targets of backends, as data: the lowering, the layout of quantized weights, and the compute dtype."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import onnx_ir as ir

from speccompile.compiler.lower import onnxruntime, static_cache
from speccompile.contract import Graph, with_cache_dtypes, with_fixed_batch, with_tensorrt_states
from speccompile.plan.plan import EnginePlan, PrecisionPlan
from speccompile.plan.precisions import FLOATS

NATIVE = "native"
"""Layout of weights for the kernels of `native/`, which compute in float32 for every precision."""


@dataclass(frozen=True)
class LoweringTarget:
    """Target of a lowering. weights: layout of quantized weights; compute: dtype of activations with quantized weights.
    supports_batch_slices: a run may use some of the batch slots."""

    name: str
    lower: Callable[[ir.Model], dict[str, int]]
    weights: str
    compute: str
    supports_batch_slices: bool = False

    def contract(self, graph: Graph, dtypes: Mapping[str, str], rows: int = 1) -> Graph:
        """Return the contract of a lowered graph. dtypes: component -> its compute dtype; rows: batch size."""
        typed = with_cache_dtypes(graph if self.supports_batch_slices else with_fixed_batch(graph, rows), dtypes)
        return with_tensorrt_states(typed) if self.lower is static_cache.lower else typed

    def compute_dtype(self, word: str) -> str:
        """Return the dtype of caches and activations in a precision."""
        return word if word in FLOATS and self.weights != NATIVE else self.compute


CPU = LoweringTarget("onnxruntime-cpu", onnxruntime.lower, NATIVE, "float32", supports_batch_slices=True)
CUDA = LoweringTarget("onnxruntime-cuda", static_cache.lower, "matmul_nbits", "float16")
TENSORRT = LoweringTarget("tensorrt", static_cache.lower, "qdq", "float16")

LOWERING_TARGETS = {
    ("onnxruntime", "cpu"): CPU,
    ("onnxruntime", "cuda"): CUDA,
    ("onnxruntime", "nv_tensorrt_rtx"): TENSORRT,
    ("tensorrt_rtx", "cuda"): TENSORRT,
    ("tensorrt", "cuda"): TENSORRT,
}
"""(backend, provider) -> its lowering target."""


def lowering_target(engine: EnginePlan) -> LoweringTarget:
    """Return the lowering target of an engine's graphs."""
    return LOWERING_TARGETS[engine.backend, engine.provider]


@dataclass(frozen=True)
class WeightFormat:
    """Stored format of one component's weights, and its compute dtype: equal formats share one weights file.

    in_place: the weights are the model's own and stay in its checkpoint, for the proof alone. target_word,
    target_block_size: the target's format, for a drafter that reads stored weights of the target in another format.
    """

    word: str
    block_size: int | None
    weights: str
    compute: str
    target_word: str | None = None
    target_block_size: int | None = None
    in_place: bool = False

    @property
    def is_dtype(self) -> bool:
        """Return whether the precision is the dtype of everything, and weights are written as traced."""
        return self.word in FLOATS and self.weights != NATIVE

    @property
    def is_traced(self) -> bool:
        """Return whether the graph is the traced one."""
        return self.in_place and self.is_dtype

    @property
    def arithmetic(self) -> str:
        """Return the precision whose rounding decides the tolerance between two computations."""
        formats = [word for word in (self.word, self.target_word) if word is not None and word not in FLOATS]
        return formats[0] if formats else self.compute

    @property
    def has_traced_weights(self) -> bool:
        """Return whether every weight is the model's own."""
        return {self.word, self.target_word} <= {"float32", None}

    @property
    def name(self) -> str:
        """Return the name in files: "float16", or "int4-32.qdq.float16"."""
        if self.in_place:
            return f"in-place.{self.weights}"
        if self.is_dtype:
            return self.word
        own = _sized(self.word, self.block_size)
        target = f"+{_sized(self.target_word, self.target_block_size)}" if self.target_word else ""
        return f"{own}{target}.{self.weights}.{self.compute}"


def _sized(word: str, block_size: int | None) -> str:
    return f"{word}-{block_size}" if block_size else word


def numbers_in_place(form: LoweringTarget) -> WeightFormat:
    """Return the format of graphs over the model's own weights."""
    return WeightFormat("float32", None, form.weights, "float32", in_place=True)


def weight_format(form: LoweringTarget, precision: PrecisionPlan, part: str, *, shares: bool = False) -> WeightFormat:
    """Return the weight format of the component "target" or "drafter"; float32 for a drafter without weights. shares:
    the drafter reads weights of the target, which on a CPU stay in the target's format; other targets share only equal
    formats."""
    words = precision.words()
    word = words.get(part, "float32")
    own = WeightFormat(word, precision.block_size_of(word), form.weights, form.compute_dtype(word))
    target = words["target"]
    if part == "target" or not shares or form.weights != NATIVE or target == word:
        return own
    return replace(own, target_word=target, target_block_size=precision.block_size_of(target))
