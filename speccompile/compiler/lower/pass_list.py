"""Ordered lists of passes, which make up a backend's lowering."""

from collections import Counter
from collections.abc import Callable

import onnx_ir as ir
from onnx_ir.passes import common

from speccompile.compiler.lower import neutral
from speccompile.compiler.lower.passes.name_branches import name_branches

Pass = tuple[str, Callable[[ir.Model], int], str]
"""Name, pass, and the reason for it."""


def _library(make: Callable[[], ir.passes.PassBase]) -> Callable[[ir.Model], int]:
    return lambda model: int(make()(model).modified)


def shared(reason: str) -> Pass:
    """Return a pass that eliminates common subexpressions."""
    return "common_subexpressions", _library(common.CommonSubexpressionEliminationPass), reason


TIDY: tuple[Pass, ...] = (
    ("identity", _library(common.IdentityEliminationPass), "the trace leaves many behind"),
    shared("layers share masks and shapes"),
    ("unused_nodes", _library(common.RemoveUnusedNodesPass), "what the merged nodes leave behind"),
    ("unused_functions", _library(common.RemoveUnusedFunctionsPass), "the neutral ops are gone"),
    ("unused_opsets", _library(common.RemoveUnusedOpsetsPass), "and with them their domain"),
    ("order", _library(common.TopologicalSortPass), "a valid file lists producers first"),
    ("name_branches", name_branches, "no two values of a graph and its branches may share a name"),
)
"""The last passes of every list."""


def run_passes(model: ir.Model, passes: tuple[Pass, ...]) -> dict[str, int]:
    """Lower in place. Return the number of rewrites of each pass (library passes: 1 if they changed anything).

    Raise AssertionError if a neutral op is left: every lowered graph must be standard ONNX.
    """
    fired = Counter[str]()
    for name, run, _ in passes:
        fired[name] += run(model)
    nodes = ir.traversal.RecursiveGraphIterator(model.graph)
    assert neutral.DOMAIN not in {node.domain for node in nodes}, "a neutral op was not lowered"
    return dict(fired)
