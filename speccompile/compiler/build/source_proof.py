"""The graph level of the proof of encoders: what they write for the sources of a schedule."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from speccompile.bundle.sources import is_encoder
from speccompile.compiler.build.cache_key import GraphFiles
from speccompile.compiler.build.cached_steps import CachedSteps
from speccompile.compiler.build.lowered_proof import ProofEngine
from speccompile.compiler.build.traced import SourceTraceInputs
from speccompile.compiler.build.traced_graphs import TracedGraph, neutral, neutral_engine
from speccompile.compiler.lower.files import neutral_file
from speccompile.compiler.models.load import load_model
from speccompile.compiler.models.sourced import EAGER as EAGER_ATTENTION
from speccompile.compiler.models.sourced import SourcedModel
from speccompile.compiler.prove.graphs import EAGER, TRACED, check_near, check_same, noise_of
from speccompile.compiler.prove.source_feeds import encode_sources, heard_by, rows_of
from speccompile.contract import BATCH, Graph
from speccompile.errors import ProofError
from speccompile.progress import log_step
from speccompile.runtime.devices.engine import Array, Engine

Rows = list[dict[str, Array]]
"""Rows that an encoder writes for each source of a schedule, by buffer."""


def encoded_rows(engine: Engine, graph: Graph, sources: list[list[int]]) -> Rows:
    """Return the rows that a graph of an engine writes for each source of a batch."""
    heard = heard_by(graph)
    encode_sources(engine, sources, heard)
    sizes = {BATCH: len(sources)}
    states = {t.buffer: engine.host_view(t.buffer, t.concrete_shape(sizes)) for t in graph.outputs}
    return [
        {name: whole[row, :, : rows_of(source, heard)].copy() for name, whole in states.items()}
        for row, source in enumerate(sources)
    ]


@dataclass(frozen=True)
class EncoderProofInputs:
    """Inputs of the proof of a graph that encodes a source. files: the graph's, and the one that it is compared with;
    of a traced graph, whose model is `of`, its own. sources: token ids."""

    files: GraphFiles
    sources: tuple[list[int], ...]
    of: SourceTraceInputs | None = None


def prove_traced_encoders(
    inputs: Mapping[str, SourceTraceInputs], parts: Iterable[TracedGraph], folder: Path, steps: CachedSteps
) -> list[dict[str, Any]]:
    """Compare the traced encoders of sources with transformers'. Return rows of the proof. Raise ProofError."""
    rows = []
    for part in (part for part in parts if part.graph.name in inputs):
        name, of = part.graph.name, inputs[part.graph.name]
        given = EncoderProofInputs(GraphFiles(folder, (neutral_file(part.graph),)), part.script.sources, of)

        def check(part: TracedGraph = part, of: SourceTraceInputs = of) -> dict[str, Any]:
            with log_step(f"proving {part.graph.name}: {EAGER}"):
                return check_eager(of, part.graph, list(part.script.sources), folder)

        rows.append(steps.result(f"proving {name}: {EAGER}", given, check))
    return rows


def prove_encoders(
    engine: ProofEngine, parts: Iterable[TracedGraph], folder: Path, steps: CachedSteps
) -> list[dict[str, Any]]:
    """Compare an engine's encoders of sources with the neutral graphs in the same weight format. Return rows of the
    proof. Raise ProofError."""
    rows, level = [], f"{engine.lowered.name} against neutral"
    for part in (part for part in parts if is_encoder(part.graph)):
        name = part.graph.name
        neutral_one = neutral_file(part.graph, engine.lowered.weight_format(name))
        files = GraphFiles(folder, (neutral_one, engine.entry.files[name]))

        def check(part: TracedGraph = part) -> dict[str, Any]:
            with log_step(f"proving {part.graph.name}: {level}"):
                return check_lowered(part, engine, folder, level)

        rows.append(steps.result(f"proving {name}: {level}", EncoderProofInputs(files, part.script.sources), check))
    return rows


@torch.no_grad()
def check_eager(inputs: SourceTraceInputs, graph: Graph, sources: list[list[int]], folder: Path) -> dict[str, Any]:
    """Compare the rows that a traced encoder writes with transformers'. Raise ProofError."""
    model = load_model(inputs.model.folder, inputs.shape.max_length)
    assert isinstance(model, SourcedModel)
    model.set_attn_implementation(EAGER_ATTENTION)
    got = encoded_rows(neutral_engine([(graph, neutral_file(graph))], folder), graph, sources)
    limit, compared = noise_of(graph), 0
    for number, (source, rows) in enumerate(zip(sources, got, strict=True)):
        model.read(source)
        assert model.encoded is not None
        expected = [each for pair in model.cross_rows(model.encoded) for each in pair]
        for (name, found), wanted in zip(rows.items(), expected, strict=True):
            _check(found, wanted[0].numpy(), limit, f"{graph.name}, source {number}, {name}")
            compared += found.size
    return {"graph": graph.name, "level": EAGER, "values": compared, "tolerance": limit}


def check_lowered(part: TracedGraph, engine: ProofEngine, folder: Path, level: str) -> dict[str, Any]:
    """Compare the rows that a lowered encoder writes with those of the neutral graph in the same weight format. Raise
    ProofError."""
    numbers, sources = engine.lowered.weight_format(part.graph.name), list(part.script.sources)
    got = encoded_rows(engine.open(folder, batch_size=len(sources)), part.graph, sources)
    expected = encoded_rows(neutral_engine([neutral(part.graph, numbers, folder)], folder), part.graph, sources)
    check = check_same if numbers.arithmetic == TRACED else check_near
    return check(got, expected, part.graph.name, level, numbers.arithmetic)


def _check(got: Array, expected: Array, limit: float, where: str) -> None:
    difference, largest = float(np.abs(got - expected).max()), float(np.abs(expected).max())
    if not difference <= limit * max(largest, 1.0):
        raise ProofError(
            f"{where}: differs by {difference:.3g}, more than {limit} of the largest value {largest:.3g}",
            hint="the graph computes something else than the model: please report it with the recipe",
        )
