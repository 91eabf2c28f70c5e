"""Replace the symbolic batch size by its number, for engines that always run the whole batch."""

import onnx_ir as ir

from speccompile.contract import BATCH


def fix_batch(model: ir.Model, rows: int) -> int:
    """Before: x [batch, ..], for all batched values. After: x [3, ..]. Return the number of values.

    Later passes need static sizes, and the shape of such a value becomes a constant.
    """
    values = [*model.graph.inputs, *model.graph.initializers.values()]
    values += [value for node in model.graph for value in node.outputs]
    named = [value for value in values if value.shape is not None and BATCH in value.shape]
    for value in named:
        assert value.shape is not None
        value.shape = ir.Shape([rows if size == BATCH else size for size in value.shape])
    return len(named)
