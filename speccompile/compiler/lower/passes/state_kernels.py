"""Convolutions and recurrences as kernels."""

import numpy as np
import onnx_ir as ir

from speccompile.compiler.lower import neutral
from speccompile.compiler.lower.native import DOMAIN
from speccompile.compiler.lower.passes import Nodes, rewrite_nodes, static_size

MOVING = ("Shift", "Advance", "AdvanceDelta")
"""Ops that compute the next value of a state, and may write it in place."""


def state_kernels(model: ir.Model) -> int:
    """Before: speccompile::Convolve(rows, state, weight [C, K]), Shift, Recur, RecurDelta, Advance, AdvanceDelta.

    After: speccompile.native::Convolve<silu = 0>(rows, state, Transpose(weight), zeros), all other ops with the same
    inputs. If a state might be read after it is written, the writer's count becomes After(count, results of the
    readers).
    """
    fired = rewrite_nodes(model, neutral.DOMAIN, "Convolve", _convolve)
    for op in (*MOVING, "Recur", "RecurDelta"):
        fired += rewrite_nodes(model, neutral.DOMAIN, op, _kernel)
    for node in [node for node in model.graph if node.domain == DOMAIN and node.op_type in MOVING]:
        _order(model.graph, node)
    return fired


def _convolve(nodes: Nodes, node: ir.Node) -> ir.Value:
    rows, state, weight = (value for value in node.inputs if value is not None)
    bias = nodes("Constant", value=ir.tensor(np.zeros(static_size(weight, 0), np.float32)))
    taps = nodes("Transpose", weight, perm=(1, 0))
    return nodes("Convolve", rows, state, taps, bias, domain=DOMAIN, silu=0)


def _kernel(nodes: Nodes, node: ir.Node) -> ir.Value:
    return nodes(node.op_type, *(value for value in node.inputs if value is not None), domain=DOMAIN)


def _order(graph: ir.Graph, node: ir.Node) -> None:
    """Let the writer of a state wait for all its readers: engines update it in place."""
    *_, state, _, count = node.inputs
    assert state is not None
    assert count is not None
    if not state.is_graph_input() or not node.outputs[0].is_graph_output():
        return
    before = _above(node)
    for reader in [use.node for use in state.uses() if use.node is not node and use.node not in before]:
        after = ir.node("After", [count, reader.outputs[0]], domain=DOMAIN)
        count, after.outputs[0].type, after.outputs[0].shape = after.outputs[0], count.type, count.shape
        graph.insert_before(node, after)
    node.replace_input_with(len(node.inputs) - 1, count)


def _above(node: ir.Node) -> set[ir.Node]:
    """Return the nodes that must run before a node."""
    found, pending = set[ir.Node](), [node]
    while pending:
        made = [value.producer() for value in pending.pop().inputs if value is not None]
        new = [each for each in made if each is not None and each not in found]
        found.update(new)
        pending += new
    return found
