"""The number of rows in the place of its name, for engines whose runs are over all of them."""

import onnx_ir as ir

from speccompile.contract import BATCH


def fix_batch(model: ir.Model, rows: int) -> int:
    """Before: x [batch, ..], all that has a line for each row. After: x [3, ..]. Returns how many values there are.

    Passes behind ask for sizes that are numbers; what asks for the shape of such a value is a constant then.
    """
    values = [*model.graph.inputs, *model.graph.initializers.values()]
    values += [value for node in model.graph for value in node.outputs]
    named = [value for value in values if value.shape is not None and BATCH in value.shape]
    for value in named:
        assert value.shape is not None
        value.shape = ir.Shape([rows if size == BATCH else size for size in value.shape])
    return len(named)
