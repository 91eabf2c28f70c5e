"""Weights that are computed while they are written."""

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray


def add_initializer(
    graph: ir.Graph, name: str, dtype: ir.DataType, shape: Sequence[int], make: Callable[[], NDArray[np.generic]]
) -> ir.Value:
    """A new initializer whose array is made when it is written, and let go of then.

    It is made again for every reader: a model's weights are never in memory together.
    """
    tensor = ir.LazyTensor(lambda: ir.Tensor(make(), dtype=dtype), dtype=dtype, shape=ir.Shape(shape), name=name)
    value = ir.Value(name=name, shape=tensor.shape, type=ir.TensorType(dtype), const_value=tensor)
    graph.register_initializer(value)
    return value
