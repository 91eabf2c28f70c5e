"""Types of values inside an operator that the exporter wrote out, of which the trace knows none."""

import onnx_ir as ir

_ARITHMETIC = ("Add", "Sub", "Mul", "Div", "Pow")
_Sizes = tuple[int | ir.SymbolicDim, ...]


def inferred_type(value: ir.Value | None) -> tuple[ir.DataType | None, _Sizes | None]:
    """Return dtype and shape of a value, from those of the inputs where arithmetic made it, such as the squares in a
    variance; None for what neither tells."""
    if value is None:
        return None, None
    shape = None if value.shape is None else tuple(value.shape)
    node = value.producer()
    if (value.dtype is not None and shape is not None) or node is None or node.op_type not in _ARITHMETIC:
        return value.dtype, shape
    (dtype, left), (other, right) = map(inferred_type, node.inputs)
    return value.dtype or dtype or other, shape or _broadcast(left, right)


def _broadcast(left: _Sizes | None, right: _Sizes | None) -> _Sizes | None:
    if left is None or right is None:
        return None
    rank = max(len(left), len(right))
    padded = [(1,) * (rank - len(each)) + each for each in (left, right)]
    return tuple(second if first == 1 else first for first, second in zip(*padded, strict=True))
