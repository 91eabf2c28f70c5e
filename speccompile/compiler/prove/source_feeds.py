"""Sources in the schedule of a proof: a text for each batch slot, encoded before the schedule runs."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from speccompile.bundle.sources import SOURCE, SOURCE_LENGTH, SOURCE_TOKENS
from speccompile.contract import BATCH, SOURCE_ENCODERS, Graph
from speccompile.runtime.devices.engine import Array, Engine


def make_sources(vocabulary_size: int, batch: int, longest: int, seed: int = 1) -> list[list[int]]:
    """Return random sources of different lengths for all batch slots: the first has `longest` tokens, up to 64."""
    random = np.random.default_rng(seed)
    most = min(longest, 64)
    return [random.integers(0, vocabulary_size, max(1, most - 5 * row)).tolist() for row in range(batch)]


def source_values(graphs: Iterable[Graph], sources: Sequence[Sequence[int]]) -> dict[str, Array]:
    """Return the inputs that say what the sources of all slots are, by buffer, as far as the graphs have them."""
    inputs = {tensor.buffer: tensor for graph in graphs for tensor in graph.inputs}
    values: dict[str, Array] = {}
    if SOURCE_LENGTH in inputs:
        values[SOURCE_LENGTH] = np.array([len(each) for each in sources])
    if SOURCE_TOKENS in inputs:
        rows = int(inputs[SOURCE_TOKENS].shape[1])
        values[SOURCE_TOKENS] = np.array([[*each, *[0] * (rows - len(each))] for each in sources])
    return values


def given(source: Any) -> dict[str, Any]:
    """Return the option of `Bundle.generate` with a source, or one for each prompt; none for None."""
    return {} if source is None else {"source": source}


def encode_sources(engine: Engine, sources: Sequence[Sequence[int]]) -> None:
    """Run the encoders that an engine has over the source of each batch slot, one after the other."""
    batch = len(sources)
    for name in filter(engine.has, SOURCE_ENCODERS):
        for row, source in enumerate(sources):
            engine.host_view(SOURCE, (batch, len(source)))[row] = source
            engine.bind(name, {BATCH: batch, SOURCE: len(source)}, rows=range(row, row + 1))()
