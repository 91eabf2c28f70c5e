"""Inputs of a graph from the host, window by window, and the meaningful parts of its outputs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from speccompile.compiler.prove import schedule as scripts
from speccompile.compiler.prove.schedule import Schedule
from speccompile.contract import BATCH, PERSISTENT_PREFIX, Graph, is_recurrent_state

Array = NDArray[Any]


@dataclass(frozen=True)
class Window:
    """One run of a graph. feed: its inputs except the states; fed: tokens of each batch slot; committed: those
    before."""

    feed: dict[str, Array]
    fed: list[int]
    committed: list[int]


def windows(graph: Graph, script: Schedule, *, drafts: bool) -> Iterator[Window]:
    """Yield the windows of a schedule as inputs of `verify`, `draft` or `step`.

    drafts: include those of decoding, of which two graphs may accept different drafts.
    """
    for window in scripts.windows(script if drafts else replace(script, rounds=()), [graph]):
        feed = {t.name: np.ascontiguousarray(window.input(t)) for t in graph.inputs if t.role != "state"}
        yield Window(feed, window.fed, window.committed)


def meaningful(graph: Graph, window: Window, outputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return copies of a run's outputs for the batch slots that it fed, and of the used part of every state, in the
    contract's types.

    Another version of the graph may hold its states in another dtype and shape, but in the same order.
    """
    found, sizes = {}, {BATCH: len(window.fed)}
    for row, (fed, committed) in enumerate(zip(window.fed, window.committed, strict=True)):
        for tensor in graph.outputs:
            got = outputs[tensor.name]
            if tensor.buffer.startswith(PERSISTENT_PREFIX):  # of all batch slots together
                found[tensor.name] = got.astype(tensor.dtype)
                continue
            if is_recurrent_state(tensor.buffer):
                got = got.reshape(tensor.concrete_shape(sizes))[row]
            elif tensor.role == "state":
                got = used(got.reshape(tensor.concrete_shape(sizes))[row], committed + fed)
            elif fed:
                got = got[row]
            else:
                continue
            if got.size:
                found[f"{tensor.name}, row {row}"] = got.astype(tensor.dtype)
    return found


def used(state: Array, rows: int) -> Array:
    """Return the first rows of a state of one sequence: [G, S, D] or [S]."""
    return state[:, :rows] if state.ndim == 3 else state[:rows]
