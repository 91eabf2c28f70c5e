"""What the host feeds to a graph, window by window, and what of its outputs means something."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from speccompile.contract import Graph, Tensor
from speccompile.prove.script import Script

Array = NDArray[Any]


@dataclass(frozen=True)
class Window:
    """One run of a graph. feed: its inputs but for the states; fed: tokens of each row; committed: those before."""

    feed: dict[str, Array]
    fed: list[int]
    committed: list[int]


def windows(graph: Graph, script: Script) -> Iterator[Window]:
    """The windows of a script as inputs of `verify`, `draft` or `step`. In a `step` every token is given."""
    for width, fed, committed in script.windows():
        texts = [text[start : start + width + 1] for text, start in zip(script.texts, committed, strict=True)]
        path = np.array(texts, np.int64)
        host = {
            "window": path[:, :width],
            "path": path,
            "n_path": np.array(fed),
            "n_total": np.array(fed),
            "n_given": np.array(fed) if graph.name == "step" else np.minimum(fed, 1),
            "length": np.array(committed),
        }
        widths = {"window": width, "logit_rows": width, "catch_up": width + 1}
        yield Window({t.name: _input(t, host, widths) for t in graph.inputs if t.role != "state"}, fed, committed)


def _input(tensor: Tensor, host: Mapping[str, Array], widths: dict[str, int]) -> Array:
    if tensor.role == "index":
        return np.arange(tensor.concrete_shape(widths)[0], dtype=tensor.dtype)
    return host[tensor.buffer].astype(tensor.dtype)


def meaningful(graph: Graph, window: Window, outputs: Mapping[str, Array]) -> dict[str, Array]:
    """Copies of what a run gave for the rows that it fed, and of the used part of every state, in the contract's types.

    Another form of the graph may hold its states in another dtype and shape, but in the same order.
    """
    found = {}
    for row, (fed, committed) in enumerate(zip(window.fed, window.committed, strict=True)):
        for tensor in graph.outputs:
            got = outputs[tensor.name]
            if tensor.role == "state":
                got = used(got.reshape(tensor.concrete_shape({}))[row], committed + fed)
            elif fed:
                got = got[row]
            else:
                continue
            if got.size:
                found[f"{tensor.name}, row {row}"] = got.astype(tensor.dtype)
    return found


def used(state: Array, rows: int) -> Array:
    """The first rows of a state of one sequence: [G, S, D] or [S]."""
    return state[:, :rows] if state.ndim == 3 else state[:rows]
