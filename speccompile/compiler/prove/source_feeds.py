"""Sources in the schedule of a proof: a text for each batch slot, encoded before the schedule runs.

For a target that hears, the tokens of a source are the seed of noise in place of features. `heard` is then the shape of
these, mel bands and frames, else None.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from speccompile.bundle.manifest import Manifest
from speccompile.bundle.sources import AUDIO, FRAMES_PER_ROW, SOURCE, SOURCE_LENGTH, SOURCE_TOKENS
from speccompile.contract import BATCH, SOURCE_ENCODERS, Graph
from speccompile.runtime.audio.examples import noise
from speccompile.runtime.devices.engine import Array, Engine
from speccompile.runtime.rounds.source_encoder import as_heard

Heard = tuple[int, int] | None


def make_sources(vocabulary_size: int, batch: int, longest: int, seed: int = 1) -> list[list[int]]:
    """Return random sources of different lengths for all batch slots: the first has `longest` tokens, up to 64."""
    random = np.random.default_rng(seed)
    most = min(longest, 64)
    return [random.integers(0, vocabulary_size, max(1, most - 5 * row)).tolist() for row in range(batch)]


def heard_by(graph: Graph) -> Heard:
    """Return the shape of the features that a graph encodes, None for one that encodes a text."""
    found = [tensor.shape for tensor in graph.inputs if tensor.name == AUDIO]
    return (int(found[0][1]), int(found[0][2])) if found else None


def rows_of(source: Sequence[int], heard: Heard) -> int:
    """Return the number of an encoder's rows that count."""
    return len(source) if heard is None else heard[1] // FRAMES_PER_ROW


def source_values(graphs: Iterable[Graph], sources: Sequence[Sequence[int]], heard: Heard = None) -> dict[str, Array]:
    """Return the inputs that say what the sources of all slots are, by buffer, as far as the graphs have them."""
    inputs = {tensor.buffer: tensor for graph in graphs for tensor in graph.inputs}
    values: dict[str, Array] = {}
    if SOURCE_LENGTH in inputs:
        values[SOURCE_LENGTH] = np.array([rows_of(each, heard) for each in sources])
    if SOURCE_TOKENS in inputs:
        rows = int(inputs[SOURCE_TOKENS].shape[1])
        values[SOURCE_TOKENS] = np.array([[*each, *[0] * (rows - len(each))] for each in sources])
    return values


def given(manifest: Manifest, sources: Sequence[list[int]] | None) -> dict[str, Any]:
    """Return the option of `Bundle.generate` with sources, one for each prompt; none without any."""
    if sources is None:
        return {}
    name = AUDIO if AUDIO in (manifest.source or {}) else SOURCE
    return {name: [as_heard(manifest, each) for each in sources]}


def encode_sources(engine: Engine, sources: Sequence[Sequence[int]], heard: Heard = None) -> None:
    """Run the encoders that an engine has over the source of each batch slot, one after the other."""
    batch, names = len(sources), list(filter(engine.has, SOURCE_ENCODERS))
    for row, source in enumerate(sources if names else ()):
        if heard is None:
            engine.host_view(SOURCE, (batch, len(source)))[row] = source
        else:
            engine.host_view(AUDIO, (batch, *heard))[row] = noise(source, *heard)
        widths = {BATCH: batch} | ({} if heard else {SOURCE: len(source)})
        for name in names:  # the second may read states of the first
            engine.bind(name, widths, rows=range(row, row + 1))()
