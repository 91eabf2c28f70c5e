"""The forms that graphs take for backends, as data: which lowering, which quantized weights, which dtype computes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from speccompile.contract import Graph, with_cache_dtypes, with_float_states
from speccompile.lower import masked, onnxruntime
from speccompile.recipe.plan import EnginePlan, PrecisionPlan

FLOATS = ("float32", "float16", "bfloat16")
"""Precisions that are a dtype of their own; all others are formats of weights."""

NATIVE = "native"
"""How weights are written for the kernels of `native/`, which compute in float32 whatever they are."""


@dataclass(frozen=True)
class Form:
    """One way of lowering. weights: how quantized weights are written; compute: the dtype beside quantized weights."""

    name: str
    lower: Callable[[ir.Model], dict[str, int]]
    weights: str
    compute: str

    def contract(self, graph: Graph, dtypes: Mapping[str, str]) -> Graph:
        """What a lowered graph takes and gives. dtypes: part -> what it computes in."""
        typed = with_cache_dtypes(graph, dtypes)
        return with_float_states(typed) if self.lower is masked.lower else typed

    def compute_dtype(self, word: str) -> str:
        """The dtype that caches and activations have in a precision."""
        return word if word in FLOATS and self.weights != NATIVE else self.compute


CPU = Form("onnxruntime-cpu", onnxruntime.lower, NATIVE, "float32")
CUDA = Form("onnxruntime-cuda", masked.lower, "matmul_nbits", "float16")
TENSORRT = Form("tensorrt", masked.lower, "qdq", "float16")

FORMS = {
    ("onnxruntime", "cpu"): CPU,
    ("onnxruntime", "cuda"): CUDA,
    ("onnxruntime", "nv_tensorrt_rtx"): TENSORRT,
    ("tensorrt_rtx", "cuda"): TENSORRT,
    ("tensorrt", "cuda"): TENSORRT,
}
"""(backend, provider) -> its form."""


def form_of(engine: EnginePlan) -> Form:
    """The form of an engine's graphs."""
    return FORMS[engine.backend, engine.provider]


@dataclass(frozen=True)
class Numbers:
    """What one part's weights are stored as, and what it computes in: equal ones share one weights file."""

    word: str
    block_size: int | None
    weights: str
    compute: str

    @property
    def is_dtype(self) -> bool:
        """Whether the word is the dtype of everything, and weights are written as they were traced."""
        return self.word in FLOATS and self.weights != NATIVE

    @property
    def is_traced(self) -> bool:
        """Whether the graph is the one that was traced."""
        return self.word == "float32" and self.is_dtype

    @property
    def arithmetic(self) -> str:
        """The precision whose rounding decides how far two computations may lie apart."""
        return self.compute if self.word in FLOATS else self.word

    @property
    def name(self) -> str:
        """ "float16", or "int4-32.qdq.float16"."""
        if self.is_dtype:
            return self.word
        size = f"-{self.block_size}" if self.word == "int4" else ""
        return f"{self.word}{size}.{self.weights}.{self.compute}"


def numbers_of(form: Form, precision: PrecisionPlan, part: str) -> Numbers:
    """The numbers of the part "target" or "drafter"; float32 for a drafter without weights."""
    word = precision.words().get(part, "float32")
    block_size = precision.block_size if word == "int4" else None
    return Numbers(word, block_size, form.weights, form.compute_dtype(word))
