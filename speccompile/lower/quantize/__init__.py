"""Fewer bits for the linear layers of a neutral float32 graph. Everything else stays as it is.

form             word   linear layers              head                      what goes into them
matmul_integer   int8   int8, a scale a column     the same                  int8, a scale a row
(CPU)            int4   4 bits, a scale a block    int8, a scale a column    int8, a scale a block; the head's a row
matmul_nbits     int8   8 bits, a scale for 32     the same                  as it is
(CUDA)           int4   4 bits, a scale a block    8 bits, a scale for 32    as it is
qdq              int8   int8, a scale a column     the same                  as it is
(TensorRT)       int4   4 bits, a scale a block    int8, a scale a column    as it is
                 w8a8   int8, a scale a column     the same                  int8, one fixed scale
                 fp8    float8, a scale a column   the same                  float8, one fixed scale

float8 is float8_e4m3fn. Routers of experts stay floats. On a CPU the embedding of tokens is int8 as well, with a scale
a row, and a tied head reads the same numbers; elsewhere embeddings stay floats, and a tied head gets a copy.

The head is worth 8 bits (KL divergence from float32 on the demo's prompts: layers in 4 bits 0.010, head in 8 bits the
same, head in 4 bits 0.018), and it is worth quantizing at all: for a large vocabulary it is the largest weight.
"""

import onnx_ir as ir
from onnx_ir.passes import common

from speccompile.lower.passes import ONNXRUNTIME
from speccompile.lower.quantize.calibrate import calibrate
from speccompile.lower.quantize.gemm import split_gemm
from speccompile.lower.quantize.linear import HEAD, ROUTER, find_linears, matrices, readers
from speccompile.lower.quantize.matmul_integer import matmul_integer
from speccompile.lower.quantize.matmul_nbits import matmul_nbits
from speccompile.lower.quantize.qdq import ACTIVATIONS, Ranges, qdq
from speccompile.lower.quantize.report import QuantizeReport

__all__ = ["ACTIVATIONS", "QuantizeReport", "Ranges", "calibrate", "quantize"]


def quantize(model: ir.Model, word: str, block_size: int, form: str, ranges: Ranges | None = None) -> QuantizeReport:
    """Quantize in place. Weights are computed while the model is saved, one at a time.

    word and form: a row of the table above. block_size: of int4. ranges: the smallest and largest value of activations,
    for w8a8 and fp8, as `calibrate` gives them.
    """
    split_gemm(model)
    linears, before = find_linears(model.graph), matrices(model.graph)
    chosen = [linear for linear in linears if linear.role != ROUTER]
    if form == "matmul_integer":
        in_blocks = [linear for linear in chosen if linear.role != HEAD] if word == "int4" else []
        report = matmul_nbits(model.graph, in_blocks, word, block_size)
        by_column = chosen if word == "int8" else [linear for linear in chosen if linear.role == HEAD]
        report.quantized |= matmul_integer(model.graph, by_column).quantized
    elif form == "matmul_nbits":
        report = matmul_nbits(model.graph, chosen, word, block_size)
    else:
        report = qdq(model.graph, chosen, word, block_size, ranges or {})
    report.left |= {linear.weight.name: "chooses experts" for linear in linears if linear.role == ROUTER}
    if form != "qdq":
        model.opset_imports[ONNXRUNTIME] = 1
    common.RemoveUnusedNodesPass()(model)
    reported = {linear.weight.source for linear in linears if linear.weight.name in report.left}
    report.left |= {str(value.name): readers(value) for value in before if value.uses() and value not in reported}
    return report
