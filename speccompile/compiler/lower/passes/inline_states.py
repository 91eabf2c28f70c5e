"""Inline the functions of the ops of states."""

import onnx_ir as ir
from onnx_ir.passes import common

from speccompile.compiler.lower import neutral, neutral_states


def inline_states(model: ir.Model) -> int:
    """Before: speccompile::Convolve, Shift, Recur, RecurDelta, Advance, AdvanceDelta. After: the nodes of their
    functions, for all but Shift a Scan and its inputs. Return the number of ops."""
    ops = neutral_states.TEXTS
    nodes = [node for node in model.graph if node.domain == neutral.DOMAIN and node.op_type in ops]
    if nodes:
        common.InlinePass(criteria=lambda function: function.domain == neutral.DOMAIN and function.name in ops)(model)
    return len(nodes)
