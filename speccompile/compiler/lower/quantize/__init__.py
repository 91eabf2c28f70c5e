"""Quantize the linear layers of a neutral float32 graph. Everything else stays unchanged.

`native` writes the formats of our kernels, `matmul_nbits` those of ONNX Runtime on CUDA, `qdq` those of TensorRT:
docs/explanation/kernels.md has a table of them. `passthrough` keeps the numbers of pre-quantized 4-bit weights.

In: a graph and a precision. Out: the same graph with quantized weights, and a `QuantizeReport`.
Imported by `lower`, `prove`, `build` and, for sizes, `recipe`; imports `lower.passes` and `weights`.
"""

from dataclasses import replace

import onnx_ir as ir
from onnx_ir.passes import common

from speccompile.compiler.lower.native import ONNXRUNTIME_DOMAIN
from speccompile.compiler.lower.quantize.calibrate import calibrate
from speccompile.compiler.lower.quantize.gemm import split_gemm
from speccompile.compiler.lower.quantize.heads import split_heads
from speccompile.compiler.lower.quantize.linear import LAYER, ROUTER, find_linears, matrices, readers
from speccompile.compiler.lower.quantize.matmul_nbits import matmul_nbits
from speccompile.compiler.lower.quantize.native import fuse_linears, native
from speccompile.compiler.lower.quantize.qdq import ACTIVATIONS, Ranges, qdq
from speccompile.compiler.lower.quantize.report import QuantizeReport
from speccompile.compiler.lower.quantize.shared import Shared

__all__ = ["ACTIVATIONS", "QuantizeReport", "Ranges", "calibrate", "fuse_linears", "quantize", "quantize_layers"]


def quantize_layers(model: ir.Model, word: str) -> None:
    """Quantize the linear layers of a float32 graph without a head in place, for the kernels of `native/`. word: a
    precision with a scale a column, or a float."""
    split_gemm(model)
    native(model, [replace(each, role=LAYER) for each in find_linears(model.graph)], word, 0)
    common.RemoveUnusedNodesPass()(model)


def quantize(
    model: ir.Model,
    word: str,
    block_size: int,
    form: str,
    ranges: Ranges | None = None,
    shared: Shared | None = None,
) -> QuantizeReport:
    """Quantize in place. Weights are computed while the model is saved, one at a time.

    word and form: a row of the table in docs/explanation/kernels.md. block_size: of int4. ranges: the smallest and
    largest value of activations, for w8a8 and fp8, from `calibrate`. shared: the target's weights, which keep its
    format (native).
    """
    split_gemm(model)
    if form == "native":  # elsewhere one product over all heads is faster than quantized products per head
        split_heads(model)
    linears, before = find_linears(model.graph), matrices(model.graph)
    chosen = [linear for linear in linears if linear.role != ROUTER]
    match form:
        case "native":
            report = native(model, linears, word, block_size, shared)
        case "matmul_nbits":
            report = matmul_nbits(model.graph, chosen, word, block_size)
            model.opset_imports[ONNXRUNTIME_DOMAIN] = 1
        case "qdq":
            report = qdq(model.graph, chosen, word, block_size, ranges or {})
        case _:
            raise ValueError(f"received the form {form!r}, expected native, matmul_nbits or qdq")
    if form != "native":  # which has routers in float32
        report.left |= {linear.weight.name: "chooses experts" for linear in linears if linear.role == ROUTER}
    common.RemoveUnusedNodesPass()(model)
    reported = {linear.weight.source for linear in linears if linear.weight.name in report.left}
    report.left |= {str(value.name): readers(value) for value in before if value.uses() and value not in reported}
    return report
