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
    """A new initializer whose array is made when it is written, and let go of then.

    It is made again for every reader: a model's weights are never in memory together. recipe: what decides its numbers,
    as JSON; without one they are made to be compared.
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
