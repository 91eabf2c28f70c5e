"""States of one batch slot, in the buffers of an engine: copied to another slot, read and written."""

from collections.abc import Iterable

import numpy as np

from speccompile.contract import BATCH, DTYPES, OUT_OF_PLACE_PREFIX, PERSISTENT_PREFIX, Graph
from speccompile.runtime.devices.engine import Array, Engine


class SlotStates:
    """The states that have a line for each batch slot. Persistent states are none of them: they serve drafts of any
    text."""

    def __init__(self, engine: Engine, graphs: Iterable[Graph], batch: int) -> None:
        """graphs: the engine's graphs, which may differ from the manifest's."""
        self._engine = engine
        tensors = (tensor for graph in graphs for tensor in graph.inputs)
        found = {
            tensor.buffer: tensor
            for tensor in tensors
            if tensor.role == "state" and not tensor.buffer.startswith((PERSISTENT_PREFIX, OUT_OF_PLACE_PREFIX))
        }
        self._shapes = {name: tensor.concrete_shape({BATCH: batch}) for name, tensor in found.items()}
        self.shapes = {name: shape[1:] for name, shape in self._shapes.items()}
        """Buffer -> shape of one slot's line."""
        self.dtypes = {name: DTYPES[tensor.dtype].safetensors for name, tensor in found.items()}
        """Buffer -> its dtype, as safetensors calls it."""

    def line(self, buffer: str, slot: int) -> Array:
        """Return a view or a copy of a slot's line of a buffer."""
        line: Array = self._engine.host_view(buffer, self._shapes[buffer])[slot]
        return line

    def write(self, buffer: str, slot: int, part: tuple[slice, ...], values: Array) -> None:
        """Write a part of a slot's line."""
        held = self._engine.host_view(buffer, self._shapes[buffer])
        if held.flags.writeable:
            held[slot][part] = values
        else:
            changed = np.array(held)
            changed[slot][part] = values
            self._engine.write_state(buffer, changed)

    def copy(self, source: int, slot: int) -> None:
        """Copy the lines of slot `source` to `slot`."""
        for buffer in self._shapes:
            self.write(buffer, slot, (), self.line(buffer, source))
