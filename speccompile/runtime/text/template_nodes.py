"""Syntax tree of a chat template: calls of the environment's limits are inserted before jinja2 compiles it."""

from typing import Any

from jinja2 import TemplateSyntaxError, nodes


def check_breaks(node: nodes.Node, in_loop: bool = False) -> None:
    """Raise TemplateSyntaxError for a break outside a loop, which jinja2 would leave to Python."""
    if isinstance(node, nodes.Break | nodes.Continue) and not in_loop:
        word = type(node).__name__.lower()
        raise TemplateSyntaxError(f"'{word}' stands outside a loop", node.lineno)
    for name, value in node.iter_fields():
        inner = (in_loop or isinstance(node, nodes.For)) if name == "body" else in_loop
        if isinstance(node, nodes.Macro | nodes.CallBlock):
            inner = False
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, nodes.Node):
                check_breaks(each, inner)


def insert_calls(node: nodes.Node) -> None:
    """Let loops and macros look at the clock (`spend`), and let comparisons, keys of mappings (`measured`) and ~
    (`concatenate`) look at sizes."""
    for child in node.iter_child_nodes():
        insert_calls(child)
    for name, value in node.iter_fields():
        if isinstance(value, nodes.Concat):
            setattr(node, name, _concatenation(value))
        elif isinstance(value, list):
            value[:] = [_concatenation(each) if isinstance(each, nodes.Concat) else each for each in value]
    if isinstance(node, nodes.Compare | nodes.Operand):
        node.expr = _measured(node.expr)
    elif isinstance(node, nodes.Pair):
        node.key = _measured(node.key)
    elif isinstance(node, nodes.For | nodes.Macro | nodes.CallBlock):
        spend = nodes.ExprStmt(_call("spend", node, []))
        node.body.insert(0, spend.set_lineno(node.lineno))


def _concatenation(node: nodes.Concat) -> nodes.Expr:
    return _call("concatenate", node, node.nodes)


def _measured(node: nodes.Expr) -> nodes.Expr:
    return node if isinstance(node, nodes.Const) else _call("measured", node, [node])


def _call(method: str, place: nodes.Node, arguments: list[Any]) -> nodes.Expr:
    """Return a call of the environment's method, in the line of a node."""
    assert place.environment is not None, "the parser gives every node its environment"
    made = nodes.Call(nodes.EnvironmentAttribute(method), arguments, [], None, None)
    made.set_lineno(place.lineno).set_environment(place.environment)
    return made
