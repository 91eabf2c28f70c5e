"""Quantize the linear layers of a neutral float32 graph. Everything else stays unchanged.

form             word   linear layers              head                      their input activations
native           int8   int8, a scale a column     the same                  int8, a scale a row
(CPU)            int4   4 bits, a scale a block    int8, a scale a column    int8, a scale a block; the head's a row
                 bfloat16, float32                 the same                  as it is
                 stored  codes of a GGUF file      the same                  int8, a scale a block
matmul_nbits     int8   8 bits, a scale for 32     the same                  as it is
(CUDA)           int4   4 bits, a scale a block    8 bits, a scale for 32    as it is
qdq              int8   int8, a scale a column     the same                  as it is
(TensorRT)       int4   4 bits, a scale a block    int8, a scale a column    as it is
                 w8a8   int8, a scale a column     the same                  int8, one fixed scale
                 fp8    float8, a scale a column   the same                  float8, one fixed scale

float8 is float8_e4m3fn. Routers of experts stay floats. On a CPU the embedding of tokens has the format of the head, a
row in it being a column of the head, and a tied head reads the same numbers; elsewhere embeddings stay floats, and a
tied head gets a copy. On a CPU even float32 has its own layout: `speccompile.compiler.lower.native`.

Pre-quantized 4-bit weights keep their numbers in int4, if the block size divides the group size: see `passthrough`.

The head has 8 bits, because 4 bits cost accuracy (KL divergence from float32 on the demo's prompts: layers in 4 bits
0.010, head in 8 bits the same, head in 4 bits 0.018). It is quantized at all, because it is the largest weight for a
large vocabulary.
"""

from dataclasses import replace

import onnx_ir as ir
from onnx_ir.passes import common

from speccompile.compiler.lower.passes import ONNXRUNTIME
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
    precision with a scale a column or none, of the table above."""
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

    word and form: a row of the table above. block_size: of int4. ranges: the smallest and largest value of activations,
    for w8a8 and fp8, from `calibrate`. shared: the target's weights, which keep its format (native).
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
            model.opset_imports[ONNXRUNTIME] = 1
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
