"""Weights that are computed while they are written."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from speccompile.compiler.weights.graph import ComputedTensor


def add_initializer(
    graph: ir.Graph,
    name: str,
    dtype: ir.DataType,
    shape: Sequence[int],
    make: Callable[[], NDArray[np.generic]],
    recipe: Any = None,
) -> ir.Value:
    """Add an initializer whose array is computed when it is written, and then freed.

    Every read computes it again: a model's weights are never in memory together. recipe: identity of its values, as
    JSON; without one the values are computed for a comparison.
    """

    def tensor_of() -> ir.Tensor:
        return ir.Tensor(make(), dtype=dtype)

    tensor: ir.LazyTensor = (
        ir.LazyTensor(tensor_of, dtype=dtype, shape=ir.Shape(shape), name=name)
        if recipe is None
        else ComputedTensor(tensor_of, dtype, shape, name, recipe)
    )
    value = ir.Value(name=name, shape=tensor.shape, type=ir.TensorType(dtype), const_value=tensor)
    graph.register_initializer(value)
    return value
