"""Passes on graphs that leave a type or a size open."""

import re

import onnx_ir as ir
import pytest

from speccompile.compiler.lower.passes import static_size
from speccompile.compiler.lower.passes.cast_like import cast_like


def test_a_cast_to_a_type_that_the_graph_does_not_say_stays():
    untyped = ir.Value(name="z")
    node = ir.node("CastLike", [ir.Value(name="x"), untyped])
    model = ir.Model(ir.Graph([untyped], node.outputs, nodes=[node], opset_imports={"": 24}), ir_version=10)
    assert cast_like(model) == 0


def test_a_size_that_varies_is_told():
    value = ir.Value(name="x", shape=ir.Shape([1, "T"]))
    assert static_size(value, 0) == 1
    with pytest.raises(TypeError, match=re.escape("x: axis 1 of [1,T] is not a fixed size")):
        static_size(value, 1)
