"""The forms that graphs take for backends, as data: which lowering, which quantized weights, which dtype computes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import onnx_ir as ir

from speccompile.compiler.lower import onnxruntime, static_cache
from speccompile.contract import Graph, with_cache_dtypes, with_fixed_batch, with_tensorrt_states
from speccompile.plan.plan import EnginePlan, PrecisionPlan

FLOATS = ("float32", "float16", "bfloat16")
"""Precisions that are a dtype of their own; all others are formats of weights."""

NATIVE = "native"
"""How weights are written for the kernels of `native/`, which compute in float32 whatever they are."""


@dataclass(frozen=True)
class LoweringTarget:
    """One way of lowering. weights: how quantized weights are written; compute: the dtype beside quantized weights.
    has_ranges: whether a run may be over some rows of a batch alone."""

    name: str
    lower: Callable[[ir.Model], dict[str, int]]
    weights: str
    compute: str
    supports_batch_slices: bool = False

    def contract(self, graph: Graph, dtypes: Mapping[str, str], rows: int = 1) -> Graph:
        """What a lowered graph takes and gives. dtypes: part -> what it computes in; rows: of a batch."""
        typed = with_cache_dtypes(graph if self.supports_batch_slices else with_fixed_batch(graph, rows), dtypes)
        return with_tensorrt_states(typed) if self.lower is static_cache.lower else typed

    def compute_dtype(self, word: str) -> str:
        """The dtype that caches and activations have in a precision."""
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
"""(backend, provider) -> its form."""


def lowering_target(engine: EnginePlan) -> LoweringTarget:
    """The form of an engine's graphs."""
    return LOWERING_TARGETS[engine.backend, engine.provider]


@dataclass(frozen=True)
class WeightFormat:
    """What one part's weights are stored as, and what it computes in: equal ones share one weights file.

    in_place: the weights are the model's own and stay in its checkpoint, for the proof alone. target_word,
    target_block_size: of a drafter that reads weights of the target as they are stored there, those of the target,
    where they are others.
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
        """Whether the word is the dtype of everything, and weights are written as they were traced."""
        return self.word in FLOATS and self.weights != NATIVE

    @property
    def is_traced(self) -> bool:
        """Whether the graph is the one that was traced."""
        return self.in_place and self.is_dtype

    @property
    def arithmetic(self) -> str:
        """The precision whose rounding decides how far two computations may lie apart."""
        formats = [word for word in (self.word, self.target_word) if word is not None and word not in FLOATS]
        return formats[0] if formats else self.compute

    @property
    def has_traced_weights(self) -> bool:
        """Whether every weight is the model's own."""
        return {self.word, self.target_word} <= {"float32", None}

    @property
    def name(self) -> str:
        """ "float16", or "int4-32.qdq.float16"."""
        if self.in_place:
            return f"in-place.{self.weights}"
        if self.is_dtype:
            return self.word
        own = _sized(self.word, self.block_size)
        target = f"+{_sized(self.target_word, self.target_block_size)}" if self.target_word else ""
        return f"{own}{target}.{self.weights}.{self.compute}"


def _sized(word: str, block_size: int | None) -> str:
    return f"{word}-{block_size}" if word == "int4" else word


def numbers_in_place(form: LoweringTarget) -> WeightFormat:
    """A form of graphs over the model's own weights."""
    return WeightFormat("float32", None, form.weights, "float32", in_place=True)


def weight_format(form: LoweringTarget, precision: PrecisionPlan, part: str, *, shares: bool = False) -> WeightFormat:
    """The numbers of the part "target" or "drafter"; float32 for a drafter without weights. shares: the drafter reads
    weights of the target, which on a CPU stay in the target's numbers; elsewhere only equal numbers are shared."""
    words = precision.words()
    word = words.get(part, "float32")
    block_size = precision.block_size if word == "int4" else None
    own = WeightFormat(word, block_size, form.weights, form.compute_dtype(word))
    target = words["target"]
    if part == "target" or not shares or form.weights != NATIVE or target == word:
        return own
    return replace(own, target_word=target, target_block_size=precision.block_size if target == "int4" else None)
