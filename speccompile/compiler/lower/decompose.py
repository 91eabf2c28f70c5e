"""Decompose a traced program into the operators that torch's ONNX exporter translates, node by node.

`ExportedProgram.run_decompositions` runs the whole program twice more, which takes longer than the trace itself, though
nine nodes of ten stay unchanged. Here those nodes are not run again; each of the other nodes is traced alone, with the
same tables, and replaced by its expansion. Programs that write in place or hold other programs use torch's function.

Names with an underscore are private to torch 2.13, which `pyproject.toml` pins.
"""

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import SimpleNamespace
from typing import Any

import onnx
import onnxscript
import torch
from onnx_ir.schemas import OpSignature
from torch._export import utils as _export_utils
from torch._export.utils import _is_cia_op
from torch._guards import detect_fake_mode
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses.functional_tensor import dispatch_functionalize
from torch.export import exported_program as torch_export
from torch.fx import Graph, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.onnx._internal.exporter import _decomp, _fx_passes
from torch.onnx._internal.exporter._registration import ONNXRegistry
from torch.onnx._internal.fx.passes.type_promotion import (
    TypePromotionTable,
    _TypePromotionInterpreter,
    get_type_promotion_rule,
)
from torch.utils import _pytree as pytree

from speccompile.compiler.step.monkeypatch import patched_attribute

_aten = torch.ops.aten

_REMOVED = {_aten._assert_tensor_metadata.default, _aten.detach_.default}
"""Operators that are removed: a check of the trace's assumptions, and the end of gradients."""

_Table = dict[Any, Callable[..., Any]]


class _NeedsWholeProgramError(Exception):
    """Error for a decomposition that cannot replace its node alone."""


@contextmanager
def quick_translation() -> Iterator[None]:
    """Patch torch's exporter inside a `with` block: it reads its registry and each operator's signature once a process,
    and decomposes and promotes types node by node."""
    with (
        patched_attribute(ONNXRegistry, "from_torchlib", classmethod(_registry)),
        patched_attribute(_fx_passes, "decompose_with_registry", decompose),
        patched_attribute(_TypePromotionInterpreter, "run_node", _promote_node),
        patched_attribute(TypePromotionTable, "__init__", _share_rules),
        patched_attribute(OpSignature, "from_op_schema", _signature),
    ):
        yield


_read_registry = ONNXRegistry.from_torchlib
_make_rules = TypePromotionTable.__init__
_read_signature = OpSignature.from_op_schema
_SIGNATURES: dict[tuple[str, str, int], OpSignature] = {}
"""Domain, name and version of an operator -> its signature."""


@cache
def _known_registry(opset_version: int) -> ONNXRegistry:
    """Return the registry with the functions of torch and onnxscript. Of the hundreds that onnxscript has, their domain
    is read from `function_ir`, which parses the source of each; it is that of the function's opset."""
    parsed = property(lambda function: SimpleNamespace(domain=function.opset.domain))
    with patched_attribute(onnxscript.values.TracedOnnxFunction, "function_ir", parsed):
        return _read_registry(opset_version=opset_version)


def _registry(_: type[ONNXRegistry], opset_version: int) -> ONNXRegistry:
    """Return a new registry, to which callers may add, with the functions that were read before."""
    known, copy = _known_registry(opset_version), ONNXRegistry()
    copy._opset_version = known.opset_version
    copy.functions = {target: list(functions) for target, functions in known.functions.items()}
    return copy


def _signature(schema: onnx.defs.OpSchema) -> OpSignature:
    """Return the signature of a schema. torch's exporter asks for it at each node that it writes."""
    key = schema.domain, schema.name, schema.since_version
    if key not in _SIGNATURES:
        _SIGNATURES[key] = _read_signature(schema)
    return _SIGNATURES[key]


@cache
def _rules() -> dict[str, Any]:
    table = TypePromotionTable.__new__(TypePromotionTable)
    _make_rules(table)
    return table._rule_table


def _share_rules(table: TypePromotionTable) -> None:
    table._rule_table = _rules()


def _promote_node(interpreter: _TypePromotionInterpreter, node: Node) -> Any:
    """Insert the casts that ONNX needs before a node. The trace knows the node's result: it runs again only if its
    arguments have changed."""
    if node.op != "call_function":
        return torch.fx.Interpreter.run_node(interpreter, node)
    with interpreter._set_current_node(node):
        if rule := get_type_promotion_rule(node, interpreter.type_promotion_table):
            interpreter._maybe_promote_node(node, rule)
    return node.meta["val"] if "val" in node.meta else torch.fx.Interpreter.run_node(interpreter, node)


def decompose(program: torch.export.ExportedProgram, registry: ONNXRegistry) -> torch.export.ExportedProgram:
    """Return the program in operators of the registry and those that no table decomposes, perhaps changed in place."""
    translated = frozenset(_decomp.get_onnx_implemented_overloads(registry))
    table, composites, others = _tables(translated, len(torch.ops._dir))
    if not _can_go_by_node(program.graph):
        return program.run_decompositions(dict(table))
    try:
        _decompose_nodes(program, composites, others)
    except _NeedsWholeProgramError:
        return program.run_decompositions(dict(table))  # torch decomposes the rest of a half-finished program
    return program


@cache
def _tables(translated: frozenset[Any], namespaces: int) -> tuple[_Table, _Table, _Table]:
    """Return the decompositions of all operators that are not translated: all, those of composite operators, the rest.

    namespaces: number of operator namespaces, which changes when a library registers more. torch looks up every
    composite operator anew for each namespace, a hundred times in all; here they are looked up once.
    """
    once = cache(_export_utils._materialize_cpp_cia_ops)
    with patched_attribute(_export_utils, "_materialize_cpp_cia_ops", once):
        table = _decomp.create_onnx_friendly_decomposition_table(set(translated))
        return (table, *torch_export._split_decomp_table_to_cia_and_python_decomp(dict(table)))


def _can_go_by_node(graph: Graph) -> bool:
    for node in graph.nodes:
        if node.op == "get_attr" or isinstance(node.target, HigherOrderOperator):
            return False
        writes = isinstance(node.target, OpOverload) and node.target._schema.is_mutable
        if writes and node.target is not _aten.detach_.default:  # detach_ of a constant of the trace
            return False
    return True


def _decompose_nodes(program: torch.export.ExportedProgram, composites: _Table, others: _Table) -> None:
    graph = program.graph
    fake = detect_fake_mode([node.meta.get("val") for node in graph.nodes])
    if fake is None:
        raise _NeedsWholeProgramError
    sizes: dict[Any, Node] = {}
    with fake, torch_export._override_composite_implicit_decomp(composites):
        for node in list(graph.nodes):
            if node.target is _aten.item.default:  # run again, it would give a new unknown symbol
                node.target = _aten._local_scalar_dense.default
            if node.op == "call_function" and not _stays(node.target, composites, others):
                _replace(program, node, others, sizes)
            elif isinstance(size := node.meta.get("val"), torch.SymInt):
                sizes.setdefault(size.node.expr, node)
    graph.eliminate_dead_code()


def _stays(target: Any, composites: _Table, others: _Table) -> bool:
    """Return whether `run_decompositions` leaves an operator unchanged."""
    if not isinstance(target, OpOverload):
        return True  # arithmetic on sizes
    if target in others or target in _REMOVED or target is _aten.lift_fresh_copy.default:
        return False
    return not _is_cia_op(target) or composites.get(target) is torch_export._special_op_to_preserve_cia


def _replace(program: torch.export.ExportedProgram, node: Node, table: _Table, sizes: dict[Any, Node]) -> None:
    """Replace an operator by its decomposition."""
    graph = program.graph
    results = _expansion(graph, node, table, sizes)
    if isinstance(results, Node):
        node.replace_all_uses_with(results)
        program.graph_signature.replace_all_uses(node.name, results.name)
    else:
        for user in list(node.users):
            if user.target is not operator.getitem:
                raise _NeedsWholeProgramError
            result = results[user.args[1]]
            user.replace_all_uses_with(result)
            program.graph_signature.replace_all_uses(user.name, result.name)
            graph.erase_node(user)
    graph.erase_node(node)


def _expansion(graph: Graph, node: Node, table: _Table, sizes: dict[Any, Node]) -> Any:
    """Insert the decomposition of a node before it. Return the node of its result, or a list of them."""
    if node.target in _REMOVED:
        return node.args[0]
    if node.meta.get("unbacked_bindings"):  # a data-dependent size, which later nodes use
        raise _NeedsWholeProgramError
    leaves, spec = pytree.tree_flatten((node.args, node.kwargs))
    inputs = list(dict.fromkeys(leaf for leaf in leaves if isinstance(leaf, Node)))
    values = [each.meta["val"] for each in inputs]

    def run(*given: Any) -> Any:
        found = dict(zip(inputs, given, strict=True))
        args, kwargs = pytree.tree_unflatten([found[leaf] if isinstance(leaf, Node) else leaf for leaf in leaves], spec)
        return target(*args, **kwargs)

    target: Any = _aten.clone.default if node.target is _aten.lift_fresh_copy.default else node.target
    result = run(*values)
    for each, value in zip(inputs, values, strict=True):
        if result is value:  # a cast to the same dtype
            return each
    traced = make_fx(dispatch_functionalize(run), decomposition_table=table, tracing_mode="real")(*values).graph
    return _insert(traced, graph, node, inputs, sizes)


def _insert(traced: Graph, graph: Graph, node: Node, inputs: list[Node], sizes: dict[Any, Node]) -> Any:
    """Copy the nodes of an expansion before `node`. Sizes that the graph already computes are reused."""
    placeholders = iter(inputs)
    found: dict[Node, Node] = {}
    for each in traced.nodes:
        size = each.meta.get("val")
        known = sizes.get(size.node.expr) if isinstance(size, torch.SymInt) else None
        if each.op == "placeholder":
            found[each] = next(placeholders)
        elif each.op == "output":
            return pytree.tree_map_only(Node, found.__getitem__, each.args[0])
        elif each.op != "call_function":
            raise _NeedsWholeProgramError
        elif known is not None:
            found[each] = known
        else:
            with graph.inserting_before(node):
                found[each] = graph.node_copy(each, found.__getitem__)
                found[each].meta = node.meta | {"val": size}
    raise AssertionError("a graph without an output")
