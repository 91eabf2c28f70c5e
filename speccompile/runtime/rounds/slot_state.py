"""Copy of one batch slot's states to another slot, in the buffers of an engine."""

from collections.abc import Iterable

from speccompile.contract import BATCH, OUT_OF_PLACE_PREFIX, PERSISTENT_PREFIX, Graph
from speccompile.runtime.devices.engine import Engine


class SlotStateCopier:
    """Copies the states that have a line for each batch slot. Persistent states are not copied: they serve drafts of
    any text."""

    def __init__(self, engine: Engine, graphs: Iterable[Graph], batch: int) -> None:
        """graphs: the engine's graphs, which may differ from the manifest's."""
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
            else:  # a copy of a device buffer
                values = values.copy()
                values[slot] = values[source]
                self._engine.write_state(buffer, values)
