"""What a slot has in the buffers of an engine: its line of every state, copied to another slot."""

from collections.abc import Iterable

from speccompile.contract import BATCH, OUT_OF_PLACE_PREFIX, PERSISTENT_PREFIX, Graph
from speccompile.runtime.devices.engine import Engine


class SlotStateCopier:
    """The states that have a line for each row of a batch. Those that outlive a generation stay where they are: they
    are guesses, of whatever text."""

    def __init__(self, engine: Engine, graphs: Iterable[Graph], batch: int) -> None:
        """graphs: as the engine has them."""
        self._engine = engine
        tensors = (tensor for graph in graphs for tensor in graph.inputs)
        self._shapes = {
            tensor.buffer: tensor.concrete_shape({BATCH: batch})
            for tensor in tensors
            if tensor.role == "state" and not tensor.buffer.startswith((PERSISTENT_PREFIX, OUT_OF_PLACE_PREFIX))
        }

    def copy(self, source: int, slot: int) -> None:
        for buffer, shape in self._shapes.items():
            values = self._engine.host_view(buffer, shape)
            if values.flags.writeable:
                values[slot] = values[source]
            else:  # a copy of what lies on a device
                values = values.copy()
                values[slot] = values[source]
                self._engine.write_state(buffer, values)
