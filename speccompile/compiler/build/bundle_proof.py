"""The proof of a bundle: its graphs, weights, tokens, distributions, quality and pictures, as proof.json has them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speccompile.bundle.manifest import Manifest
from speccompile.compiler.build.cache_acceptance import compare_acceptance
from speccompile.compiler.build.cached_steps import CachedSteps
from speccompile.compiler.build.distribution_proof import prove_distributions
from speccompile.compiler.build.image_proof import measure_images, prove_images
from speccompile.compiler.build.inputs import StageInputs
from speccompile.compiler.build.lowered import Lowered, lower_traced
from speccompile.compiler.build.lowered_proof import (
    ProofEngine,
    log_requantization,
    proof_engine,
    prove_graphs,
    prove_weights,
)
from speccompile.compiler.build.proposals import prove_index
from speccompile.compiler.build.quality import measure_quality
from speccompile.compiler.build.source_proof import prove_encoders, prove_traced_encoders
from speccompile.compiler.build.token_proof import proof_sources, prove_tokens
from speccompile.compiler.build.traced_graphs import TracedGraph


@dataclass(frozen=True)
class ProofSubject:
    """Graphs of a build, and the texts over which they are proven. lowered: of every engine of the bundle, by its name.
    prompts and texts: token ids; texts are held out, and measure quality."""

    stages: StageInputs
    parts: list[TracedGraph]
    lowered: dict[str, Lowered]
    manifest: Manifest
    folder: Path
    prompts: list[list[int]]
    texts: list[list[int]]
    steps: CachedSteps

    def distinct(self) -> list[Lowered]:
        """Return the lowered graphs, once where several engines have the same."""
        return list(dict.fromkeys(self.lowered.values()))

    def lowered_from_traced(self) -> list[Lowered]:
        """Return the graphs lowered in the same forms, over the weights of the checkpoint."""
        return list(lower_traced(self.stages.lower, self.distinct(), self.parts, self.folder, self.steps))

    def engines(self) -> list[ProofEngine]:
        """Return the engines that run the distinct lowered graphs."""
        return [proof_engine(each, self.folder) for each in self.distinct()]


def prove_graphs_and_tokens(subject: ProofSubject, encoded: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the content of proof.json. encoded: rows of the encoder of pictures."""
    stages, manifest, folder, prompts = subject.stages, subject.manifest, subject.folder, subject.prompts
    inputs, steps, sources = stages.proof, subject.steps, proof_sources(stages.prompts)
    engines = subject.engines()
    rows = _graph_rows(subject, engines)
    tokens, hits = prove_tokens(inputs.tokens, manifest, engines, folder, prompts, steps, sources)
    proof: dict[str, Any] = {"proven": True, "graphs": rows, "engines": tokens}
    if hits is not None:
        proof["drafter"] = hits
    if inputs.distributions is not None:
        proof["distributions"] = prove_distributions(
            inputs.distributions, manifest, engines, folder, prompts, steps, sources
        )
    if subject.texts:
        proof["quality"] = measure_quality(inputs.quality, engines, folder, subject.texts, steps)
        compared = compare_acceptance(inputs.acceptance, manifest, engines, folder, prompts, subject.texts, steps)
        if compared:
            proof["quality"]["cache_acceptance"] = compared
    if stages.encoder is not None:
        rows += encoded
        proof["images"] = _prove_images(subject)
    return proof


def _graph_rows(subject: ProofSubject, engines: list[ProofEngine]) -> list[dict[str, Any]]:
    """Return the rows of the graphs' proof: as traced, their weights, and as lowered over both."""
    inputs, parts, folder, steps = subject.stages.proof, subject.parts, subject.folder, subject.steps
    rows = [row for part in parts for row in part.proofs]
    rows += prove_traced_encoders(subject.stages.trace.encoders, parts, folder, steps)
    traced = [proof_engine(each, folder) for each in subject.lowered_from_traced()]
    weights = prove_weights(engines, parts, folder, steps)
    log_requantization(inputs.graphs.quantizations, weights)
    rows += weights
    for engine in (*traced, *engines):
        rows += prove_graphs(inputs.graphs, engine, parts, folder, steps)
        rows += prove_encoders(engine, parts, folder, steps)
    return [*rows, *prove_index(folder, subject.manifest)]


def _prove_images(subject: ProofSubject) -> list[dict[str, Any]]:
    """Return the rows of the proof of pictures: the engines' graphs, and the same over the checkpoint's weights."""
    stages, folder = subject.stages, subject.folder
    assert stages.encoder is not None, "the target sees pictures"
    engines = [proof_engine(each, folder) for each in (*subject.lowered_from_traced(), *subject.distinct())]
    most = stages.max_encoder_divergence
    rows = prove_images(stages.encoder, stages.trace.draft, subject.manifest, engines, folder, subject.steps, most)
    return _named(rows, engines, subject.lowered)


def measure_image_quality(subject: ProofSubject) -> list[dict[str, Any]]:
    """Return rows of the target's quality behind pictures, which a build without a proof measures on request."""
    assert subject.stages.encoder is not None, "the target sees pictures"
    engines = subject.engines()
    rows = measure_images(subject.stages.encoder, subject.manifest, engines, subject.folder)
    return _named(rows, engines, subject.lowered)


def _named(
    rows: list[dict[str, Any]], measured: list[ProofEngine], lowered: dict[str, Lowered]
) -> list[dict[str, Any]]:
    """Return rows of lowered graphs with the names of the bundle's engines that have these graphs."""
    return [
        row | {"engines": [name for name, graphs in lowered.items() if graphs == each.lowered]}
        for row, each in zip(rows, measured, strict=True)
    ]
