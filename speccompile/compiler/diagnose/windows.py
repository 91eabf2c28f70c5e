"""Inputs of a graph from the host, window by window, and the meaningful parts of its outputs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from speccompile.bundle.caches import scale_name
from speccompile.compiler.prove import schedule as schedules
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
    for window in schedules.windows(script if drafts else replace(script, rounds=()), [graph]):
        feed = {t.name: np.ascontiguousarray(window.input(t)) for t in graph.inputs if t.role != "state"}
        yield Window(feed, window.fed, window.committed)


def meaningful(graph: Graph, window: Window, outputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return copies of a run's outputs for the batch slots that it fed, and of the used part of every state, in the
    contract's types; of caches in int8 the rows that they hold.

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
                if tensor.dtype == "int8":
                    got = got * outputs[scale_name(tensor.name)]
                got = used(got.reshape(tensor.concrete_shape(sizes))[row], committed + fed)
            elif fed:
                got = got[row]
            else:
                continue
            if got.size:
                found[f"{tensor.name}, row {row}"] = got.astype("float32" if tensor.dtype == "int8" else tensor.dtype)
    return found


def with_new_rows(graph: Graph, window: Window, states: Mapping[str, Array], outputs: dict[str, Array]) -> None:
    """Replace new rows of caches among the outputs of a version of the graph by the whole caches, as its engine writes
    them when it has run. states: from which it ran."""
    for written, read in graph.aliases.items():
        cache, rows = states[read].copy(), outputs[written]
        if cache.ndim != rows.ndim or rows.shape[2:] == cache.shape[2:]:
            continue
        for line, new, start in zip(cache, rows, window.committed, strict=True):
            line[:, start : start + new.shape[1]] = new[:, : line.shape[1] - start]
        outputs[written] = cache


def used(state: Array, rows: int) -> Array:
    """Return the first rows of a state of one sequence: [G, S, D] or [S]."""
    return state[:, :rows] if state.ndim == 3 else state[:rows]
