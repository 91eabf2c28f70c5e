"""Prove the graphs of encoders: compare the rows that they write for the sources of a schedule."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from speccompile.bundle.caches import scale_name
from speccompile.bundle.sources import is_encoder, shares_encoder
from speccompile.compiler.build.cache_key import GraphFiles
from speccompile.compiler.build.cached_steps import CachedSteps
from speccompile.compiler.build.lowered_proof import ProofEngine
from speccompile.compiler.build.traced import SourceTraceInputs
from speccompile.compiler.build.traced_graphs import TracedGraph, neutral, neutral_engine
from speccompile.compiler.lower.files import neutral_file
from speccompile.compiler.models.load import load_model
from speccompile.compiler.models.sourced import EAGER as EAGER_ATTENTION
from speccompile.compiler.models.sourced import SourcedModel
from speccompile.compiler.prove.graphs import EAGER, TRACED, check_near, check_same, decoded_rows
from speccompile.compiler.prove.source_feeds import encode_sources, encoder_rows, feature_shape
from speccompile.compiler.prove.tolerance import TOLERANCE
from speccompile.contract import BATCH, ENCODE_SOURCE, Graph, is_scale
from speccompile.errors import ProofError
from speccompile.progress import log_step
from speccompile.runtime.devices.engine import Array, Engine

Rows = list[dict[str, Array]]
"""Rows that an encoder writes for each source of a schedule, by buffer."""


def encoded_rows(engine: Engine, running: Sequence[Graph], sources: list[list[int]]) -> Rows:
    """Return the rows that the last of some graphs of an engine writes for each source of a batch."""
    features, states = feature_shape(running[0]), [each for each in running[-1].outputs if each.role == "state"]
    encode_sources(engine, sources, features)
    sizes = {BATCH: len(sources)}
    views = {each.buffer: engine.host_view(each.buffer, each.concrete_shape(sizes)) for each in states}
    return [
        {name: whole[row, :, : encoder_rows(source, features)].copy() for name, whole in views.items()}
        for row, source in enumerate(sources)
    ]


@dataclass(frozen=True)
class EncoderProofInputs:
    """Inputs of the proof of a graph that encodes a source. files: the graph's, and the one that it is compared with;
    of a traced graph, whose model is `of`, its own. sources: token ids."""

    files: GraphFiles
    sources: tuple[list[int], ...]
    of: SourceTraceInputs | None = None


def _running(graph: Graph, parts: Iterable[TracedGraph]) -> list[Graph]:
    """Return the graphs that write the rows of an encoder: the one whose states it reads, if there is one, and it."""
    return [each.graph for each in parts if each.graph.name == ENCODE_SOURCE and shares_encoder(graph)] + [graph]


def prove_traced_encoders(
    inputs: Mapping[str, SourceTraceInputs], parts: Sequence[TracedGraph], folder: Path, steps: CachedSteps
) -> list[dict[str, Any]]:
    """Compare the traced encoders of sources with transformers', a drafter's with its own, whichever encoder it reads.
    Return rows of the proof. Raise ProofError."""
    rows = []
    for part in (part for part in parts if part.graph.name in inputs):
        name, of, running = part.graph.name, inputs[part.graph.name], _running(part.graph, parts)
        files = GraphFiles(folder, tuple(map(neutral_file, running)))

        given = EncoderProofInputs(files, part.script.sources, of)

        def check(given: EncoderProofInputs = given, running: list[Graph] = running) -> dict[str, Any]:
            with log_step(f"proving {running[-1].name}: {EAGER}"):
                return check_eager(given, running)

        rows.append(steps.result(f"proving {name}: {EAGER}", given, check))
    return rows


def prove_encoders(
    engine: ProofEngine, parts: Sequence[TracedGraph], folder: Path, steps: CachedSteps
) -> list[dict[str, Any]]:
    """Compare an engine's encoders of sources with the neutral graphs in the same weight format. Return rows of the
    proof. Raise ProofError."""
    rows, level = [], f"{engine.lowered.name} against neutral"
    for part in (part for part in parts if is_encoder(part.graph)):
        name, running = part.graph.name, _running(part.graph, parts)
        neutrals = (neutral_file(each, engine.lowered.weight_format(each.name)) for each in running)
        files = GraphFiles(folder, (*neutrals, *(engine.entry.files[each.name] for each in running)))

        def check(part: TracedGraph = part, running: list[Graph] = running) -> dict[str, Any]:
            with log_step(f"proving {part.graph.name}: {level}"):
                return check_lowered(part, running, engine, folder, level)

        rows.append(steps.result(f"proving {name}: {level}", EncoderProofInputs(files, part.script.sources), check))
    return rows


@torch.no_grad()
def check_eager(inputs: EncoderProofInputs, running: list[Graph]) -> dict[str, Any]:
    """Compare the rows that the last of some traced encoders writes with transformers'. Raise ProofError."""
    graph, of, sources, folder = running[-1], inputs.of, list(inputs.sources), inputs.files.folder
    assert of is not None, "of a traced graph"
    model = load_model(of.model.folder, of.shape.max_length)
    assert isinstance(model, SourcedModel)
    model.set_attn_implementation(EAGER_ATTENTION)
    got = encoded_rows(neutral_engine([(each, neutral_file(each)) for each in running], folder), running, sources)
    limit, compared = TOLERANCE[TRACED], 0  # of rows that are stored as codes as well, but for half a step
    for number, (source, rows) in enumerate(zip(sources, got, strict=True)):
        model.read(source)
        assert model.encoded is not None
        expected = [each for pair in model.cross_rows(model.encoded) for each in pair]
        floats = {name: each for name, each in rows.items() if not is_scale(name)}
        for (name, found), wanted in zip(floats.items(), expected, strict=True):
            scales = rows[scale_name(name)] if found.dtype == np.int8 else None
            _check(found, wanted[0].numpy(), limit, f"{graph.name}, source {number}, {name}", scales)
            compared += found.size
    return {"graph": graph.name, "level": EAGER, "values": compared, "tolerance": limit}


def check_lowered(
    part: TracedGraph, running: list[Graph], engine: ProofEngine, folder: Path, level: str
) -> dict[str, Any]:
    """Compare the rows that a lowered encoder, the last one running, writes with those of the neutral graph in the same
    weight format. Raise ProofError."""
    words = [engine.lowered.weight_format(each.name).arithmetic for each in running]
    word, sources = max(words, key=TOLERANCE.__getitem__), list(part.script.sources)
    got = encoded_rows(engine.open(folder, batch_size=len(sources)), running, sources)
    formats = [neutral(each, engine.lowered.weight_format(each.name), folder) for each in running]
    expected = encoded_rows(neutral_engine(formats, folder), running, sources)
    check = check_same if word == TRACED else check_near
    return check(got, expected, part.graph.name, level, word)


def _check(got: Array, expected: Array, limit: float, where: str, scales: Array | None) -> None:
    """Raise ProofError if rows differ. scales: of rows that are codes, whose numbers lie half a step away at most."""
    if scales is not None:
        got, half = decoded_rows(got, scales), scales[..., :1] / 2
        expected = np.clip(got, expected - half, expected + half)
    difference, largest = float(np.abs(got - expected).max()), float(np.abs(expected).max())
    if not difference <= limit * max(largest, 1.0):
        raise ProofError(
            f"{where}: differs by {difference:.3g}, more than {limit} of the largest value {largest:.3g}",
            hint="the graph computes something else than the model: please report it with the recipe",
        )
