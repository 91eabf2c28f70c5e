"""The buffers of some graphs: memory that they share by name."""

from collections.abc import Iterable
from dataclasses import dataclass

from speccompile.contract import Dimension, Graph


@dataclass(frozen=True)
class Buffer:
    """Memory that graphs share by name. A name has several shapes if a width varies from run to run."""

    name: str
    dtype: str
    shape: tuple[Dimension, ...]
    role: str


def buffers(graphs: Iterable[Graph]) -> tuple[Buffer, ...]:
    """Return the buffers of some graphs, each shape once, states last."""
    tensors = [tensor for graph in graphs for tensor in (*graph.inputs, *graph.outputs)]
    found: dict[tuple[str, str, tuple[Dimension, ...]], Buffer] = {}
    for each in tensors:
        found.setdefault((each.buffer, each.dtype, each.shape), Buffer(each.buffer, each.dtype, each.shape, each.role))
    return tuple(sorted(found.values(), key=lambda buffer: buffer.role == "state"))
