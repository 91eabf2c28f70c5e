"""Sources in the schedule of a proof: a text for each batch slot, encoded before the schedule runs.

For speech, a source is the seed of random features. `features` is their shape, mel bands and frames; None for texts.
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

FeatureShape = tuple[int, int] | None


def make_sources(vocabulary_size: int, batch: int, longest: int, seed: int = 1) -> list[list[int]]:
    """Return random sources of different lengths for all batch slots: the first has `longest` tokens, up to 64."""
    random = np.random.default_rng(seed)
    most = min(longest, 64)
    return [random.integers(0, vocabulary_size, max(1, most - 5 * row)).tolist() for row in range(batch)]


def feature_shape(graph: Graph) -> FeatureShape:
    """Return the shape of the features that a graph encodes, None for one that encodes a text."""
    found = [tensor.shape for tensor in graph.inputs if tensor.name == AUDIO]
    return (int(found[0][1]), int(found[0][2])) if found else None


def encoder_rows(source: Sequence[int], features: FeatureShape) -> int:
    """Return the number of rows that an encoder writes for a source."""
    return len(source) if features is None else features[1] // FRAMES_PER_ROW


def source_values(
    graphs: Iterable[Graph], sources: Sequence[Sequence[int]], features: FeatureShape = None
) -> dict[str, Array]:
    """Return the lengths int64 [B] and tokens int64 [B, S] of the sources of all slots, by buffer, if graphs read
    them."""
    inputs = {tensor.buffer: tensor for graph in graphs for tensor in graph.inputs}
    values: dict[str, Array] = {}
    if SOURCE_LENGTH in inputs:
        values[SOURCE_LENGTH] = np.array([encoder_rows(each, features) for each in sources])
    if SOURCE_TOKENS in inputs:
        rows = int(inputs[SOURCE_TOKENS].shape[1])
        values[SOURCE_TOKENS] = np.array([[*each, *[0] * (rows - len(each))] for each in sources])
    return values


def source_options(manifest: Manifest, sources: Sequence[list[int]] | None) -> dict[str, Any]:
    """Return the option of `Bundle.generate` that has a source for each prompt, {} if there are no sources."""
    if sources is None:
        return {}
    name = AUDIO if AUDIO in (manifest.source or {}) else SOURCE
    return {name: [as_heard(manifest, each) for each in sources]}


def encode_sources(engine: Engine, sources: Sequence[Sequence[int]], features: FeatureShape = None) -> None:
    """Run an engine's encoders over the source of each batch slot, one slot after the other."""
    batch, names = len(sources), list(filter(engine.has, SOURCE_ENCODERS))
    for row, source in enumerate(sources if names else ()):
        if features is None:
            engine.host_view(SOURCE, (batch, len(source)))[row] = source
        else:
            engine.host_view(AUDIO, (batch, *features))[row] = noise(source, *features)
        widths = {BATCH: batch} | ({} if features else {SOURCE: len(source)})
        for name in names:  # the second may read states of the first
            engine.bind(name, widths, rows=range(row, row + 1))()
