"""Fewer bits for the linear layers of a neutral float32 graph. Everything else stays as it is.

word   linear layers               head                        what goes into them
int4   4 bits, a scale a block     8 bits                      as it is
int8   8 bits                      8 bits                      as it is
w8a8   int8, a scale a column      int8, a scale a column      int8, one fixed scale
fp8    float8, a scale a column    float8, a scale a column    float8, one fixed scale

8 bits have a scale a column in "qdq" and a scale for 32 in "matmul_nbits". float8 is float8_e4m3fn. Routers of experts
and embeddings stay floats; a head tied to an embedding gets a quantized copy of it.

The head is worth 8 bits (KL divergence from float32 on the demo's prompts: layers in 4 bits 0.010, head in 8 bits the
same, head in 4 bits 0.018), and it is worth quantizing at all: for a large vocabulary it is the largest weight.
"""

import onnx_ir as ir
from onnx_ir.passes import common

from speccompile.lower.quantize.calibrate import calibrate
from speccompile.lower.quantize.gemm import split_gemm
from speccompile.lower.quantize.linear import ROUTER, find_linears, matrices, readers
from speccompile.lower.quantize.matmul_nbits import DOMAIN, matmul_nbits
from speccompile.lower.quantize.qdq import ACTIVATIONS, Ranges, qdq
from speccompile.lower.quantize.report import QuantizeReport

__all__ = ["ACTIVATIONS", "QuantizeReport", "Ranges", "calibrate", "quantize"]


def quantize(model: ir.Model, word: str, block_size: int, form: str, ranges: Ranges | None = None) -> QuantizeReport:
    """Quantize in place. Weights are computed while the model is saved, one at a time.

    word: a row of the table above. block_size: of int4. form: "matmul_nbits" (int4 and int8) or "qdq". ranges: the
    smallest and largest value of activations, for w8a8 and fp8, as `calibrate` gives them.
    """
    split_gemm(model)
    linears, before = find_linears(model.graph), matrices(model.graph)
    chosen = [linear for linear in linears if linear.role != ROUTER]
    if form == "matmul_nbits":
        report = matmul_nbits(model.graph, chosen, word, block_size)
        model.opset_imports[DOMAIN] = 1
    else:
        report = qdq(model.graph, chosen, word, block_size, ranges or {})
    report.left |= {linear.weight.name: "chooses experts" for linear in linears if linear.role == ROUTER}
    common.RemoveUnusedNodesPass()(model)
    reported = {linear.weight.source for linear in linears if linear.weight.name in report.left}
    report.left |= {str(value.name): readers(value) for value in before if value.uses() and value not in reported}
    return report
