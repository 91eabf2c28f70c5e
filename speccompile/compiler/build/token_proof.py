"""The token level of a build's proof: the graphs of every engine against themselves, and against transformers."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from speccompile.bundle import acceptance
from speccompile.bundle.manifest import TOKENIZER, EngineEntry, Manifest
from speccompile.bundle.prompts import read_prompts
from speccompile.compiler.build.cache_key import GraphFiles
from speccompile.compiler.build.cached_steps import CachedSteps
from speccompile.compiler.build.lowered import engines_of
from speccompile.compiler.build.lowered_proof import ProofEngine
from speccompile.compiler.build.memory import free_memory
from speccompile.compiler.build.modules import drafter_context
from speccompile.compiler.build.proposals import proof_proposer
from speccompile.compiler.models.eager import round_caches
from speccompile.compiler.models.load import ModelFiles, load_model
from speccompile.compiler.prove import reference, seeds, tokens
from speccompile.compiler.prove.tokens import Sources
from speccompile.compiler.step.media_rows import padding
from speccompile.contract import ENCODE_SOURCE
from speccompile.drafters.context import DraftInputs
from speccompile.drafters.probe import Text, compare_interpretations
from speccompile.errors import PromptError
from speccompile.plan.plan import CascadePlan, EnginePlan, RetrievalPlan
from speccompile.plan.sources import SourcePlan
from speccompile.progress import log_step
from speccompile.runtime import Bundle, Generation
from speccompile.runtime.sources import start_tokens
from speccompile.runtime.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class PromptInputs:
    """Inputs of the proof's prompts. file: of prompts, None for random ones. max_length, prefill_chunk: tokens.
    has_tokenizer: the bundle has one, for prompts that are text. source: of a target with an encoder."""

    file: Path | None
    vocabulary_size: int
    max_length: int
    prefill_chunk: int
    has_tokenizer: bool
    source: SourcePlan | None = None


@dataclass(frozen=True)
class TokenProofInputs:
    """Inputs of the token level of the proof, beside graphs and prompts. are_texts: the prompts are the recipe's.
    draft: of the graph that drafts. retrieval, cascade: of drafts that the host looks up. cache: dtype of the target's
    stored keys and values. padded: see `ImageSettings`."""

    target: ModelFiles
    max_length: int
    cache: str
    max_new_tokens: int
    are_texts: bool
    draft: DraftInputs | None
    retrieval: RetrievalPlan | None
    cascade: CascadePlan | None
    engines: tuple[EnginePlan, ...]
    writer: ModelFiles | None
    padded: tuple[int, ...] = ()


@dataclass(frozen=True)
class GenerationInputs:
    """Inputs of generating with an engine's graphs. prompts: token ids. manifest: the fields on which tokens depend."""

    files: GraphFiles
    precision: Mapping[str, str]
    prompts: list[list[int]]
    max_new_tokens: int
    manifest: Mapping[str, Any]
    sources: Sources = None


@dataclass(frozen=True)
class SpeculationInputs:
    """Inputs of the proof of an engine's speculative tokens: see `TokenProofInputs`."""

    generation: GenerationInputs
    are_texts: bool
    retrieval: RetrievalPlan | None
    cascade: CascadePlan | None
    writer: ModelFiles | None


@dataclass(frozen=True)
class TransformersInputs:
    """Inputs of the comparison of generated tokens with transformers. written: the tokens, as JSON."""

    target: ModelFiles
    max_length: int
    cache: str
    written: list[dict[str, Any]]
    precision: Mapping[str, str]
    backend: str


@dataclass(frozen=True)
class HeadProbeInputs:
    """Inputs of measuring a head's accuracy on generated tokens. written: the tokens, as JSON."""

    draft: DraftInputs
    written: list[dict[str, Any]]


def proof_prompts(inputs: PromptInputs, folder: Path) -> list[list[int]]:
    """Return token ids of the proof's prompts: the recipe's, by the tokenizer in `folder`, or random ones by default.

    Raise PromptError, naming file and prompt, for one that is longer than the buffers.
    """
    if inputs.source is not None:
        start = start_tokens(inputs.source.to_json())
        return [start for _ in proof_sources(inputs) or ()]
    if inputs.file is None:
        return tokens.default_prompts(inputs.vocabulary_size, inputs.max_length, inputs.prefill_chunk)
    return token_ids(inputs, inputs.file, folder)


def proof_sources(inputs: PromptInputs) -> Sources:
    """Return a source for each of the proof's prompts, None for a target without an encoder."""
    if inputs.source is None:
        return None
    return tokens.default_sources(inputs.vocabulary_size, inputs.source.max_length)


def token_ids(inputs: PromptInputs, file: Path, folder: Path) -> list[list[int]]:
    """Return token ids of a prompts file, by the tokenizer in `folder`. Raise PromptError as `proof_prompts` does."""
    text = Tokenizer(folder / TOKENIZER) if inputs.has_tokenizer else None
    prompts = []
    for number, prompt in enumerate(read_prompts(file), 1):
        if isinstance(prompt, str):
            assert text is not None, "the plan refuses text without a tokenizer"
            prompt = text.encode(prompt)
        if len(prompt) > inputs.max_length:
            raise PromptError(
                f"{file}: received {len(prompt)} tokens in prompt {number}, expected at most "
                f"{inputs.max_length}, which is cache.max_length",
                hint="shorten the prompt, or set a larger cache.max_length",
            )
        prompts.append(prompt)
    return prompts


def prove_tokens(
    inputs: TokenProofInputs,
    manifest: Manifest,
    engines: Sequence[ProofEngine],
    folder: Path,
    prompts: list[list[int]],
    steps: CachedSteps,
    sources: Sources = None,
) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Prove the tokens of all lowered graphs: speculative against autoregressive, both against transformers. Also
    return a head's accuracy on the target's text (`drafters.probe`), None for other drafters.

    Graphs for a GPU run on the CPU here: each row names the engines that it covers, and the executor of the graphs.
    """
    rows: list[dict[str, Any]] = []
    found: list[list[tokens.GeneratedTokens]] = []
    model, proof = _Reference(inputs), _TokenProof(inputs, manifest, folder, prompts, steps, sources)
    for engine in engines:
        row, written = proof.prove(engine)
        row["transformers"] = _compare_with_transformers(inputs, engine, written, model, steps)
        found.append(written)
        rows.append(row)
    draft = inputs.draft
    if draft is None or draft.drafter.head is None or not draft.drafter.head.taps:
        return rows, None  # without features there is only one interpretation

    def probe() -> dict[str, Any] | None:
        with log_step("probing how the head is read"):
            texts = [
                Text(each.prompt_ids + each.token_ids, len(each.prompt_ids), None if sources is None else sources[row])
                for row, each in enumerate(found[0])
            ]
            return compare_interpretations(replace(drafter_context(draft, steps), model=model()), model(), texts)

    return rows, steps.result("probing how the head is read", HeadProbeInputs(draft, _json(found[0])), probe)


class _Reference:
    """The target as transformers run it, loaded by the first call."""

    def __init__(self, inputs: TokenProofInputs) -> None:
        self._inputs = inputs
        self._model: nn.Module | None = None

    def __call__(self) -> nn.Module:
        if self._model is None:
            own = round_caches(load_model(self._inputs.target.folder, self._inputs.max_length), self._inputs.cache)
            self._model = padding(own, self._inputs.padded)
        return self._model


def _compare_with_transformers(
    inputs: TokenProofInputs,
    engine: ProofEngine,
    written: list[tokens.GeneratedTokens],
    model: _Reference,
    steps: CachedSteps,
) -> dict[str, Any]:
    entry, title = engine.entry, f"proving tokens of {engine.lowered.name} against transformers"

    def compare() -> dict[str, Any]:
        with log_step(title):
            return reference.check_tokens(model(), written, reference.judging_precision(model(), entry))

    compared = TransformersInputs(
        inputs.target, inputs.max_length, inputs.cache, _json(written), entry.precision, entry.backend
    )
    return steps.result(title, compared, compare)


@dataclass(frozen=True)
class _TokenProof:
    """Proof of the tokens of engines over the same prompts, see `prove_tokens`."""

    inputs: TokenProofInputs
    manifest: Manifest
    folder: Path
    prompts: list[list[int]]
    steps: CachedSteps
    sources: Sources

    def prove(self, engine: ProofEngine) -> tuple[dict[str, Any], list[tokens.GeneratedTokens]]:
        """Return the row of one engine's graphs, and its tokens for the reference to check."""
        lowered, entry, inputs = engine.lowered, engine.entry, self.inputs
        title, fields = f"proving tokens on {lowered.name}", self.manifest.to_json()
        decided = self._generation(entry, fields.keys() - {"name", "plan", "engines"}, entry.files)
        speculation = SpeculationInputs(decided, inputs.are_texts, inputs.retrieval, inputs.cascade, inputs.writer)

        def prove() -> dict[str, Any]:
            with log_step(title):
                return self._speculate(engine)

        found = self.steps.result(title, speculation, prove)
        stands_for = engines_of(lowered, inputs.engines)
        row: dict[str, Any] = {"engine": lowered.name, "engines": stands_for, "executed_by": "onnxruntime cpu"}
        row |= {"precision": entry.precision} | found["row"]
        return row, [tokens.GeneratedTokens(**each) for each in found["written"]]

    def _generation(self, entry: EngineEntry, fields: Collection[str], graphs: Iterable[str]) -> GenerationInputs:
        """Return the inputs of generating. fields: of the manifest, on which the tokens depend; graphs: names."""
        files = GraphFiles(self.folder, tuple(entry.files[name] for name in graphs))
        manifest = {name: value for name, value in self.manifest.to_json().items() if name in fields}
        most = self.inputs.max_new_tokens
        return GenerationInputs(files, entry.precision, self.prompts, most, manifest, self.sources)

    def _speculate(self, engine: ProofEngine) -> dict[str, Any]:
        """Generate with and without drafts. Return the row of the comparison, and the tokens as JSON."""
        prompts, most, sources, manifest = self.prompts, self.inputs.max_new_tokens, self.sources, self.manifest
        names = [graph.name for graph in engine.entry.graphs]
        opened = engine.open(self.folder, *names, batch_size=manifest.batch_size)
        bundle = Bundle(manifest, opened, engine.entry, None, None, proof_proposer(self.folder, manifest))
        speculative = tokens.decode_all(bundle, prompts, most, False, sources)
        alone = self._decode_alone(bundle, engine)
        cases = list(tokens.pair_up(bundle, prompts, speculative, alone, sources))
        ties = [tie for case in cases if (tie := tokens.check_equal(bundle, case))]
        row = tokens.summary(cases, ties)
        if self.inputs.are_texts and manifest.tokens:  # random prompts tell nothing about texts
            row[acceptance.KEY] = tokens.acceptance_of(speculative, manifest).to_json()
        if seeds.applies(bundle):
            row["seeds"] = seeds.check(bundle, prompts, most, sources)
        del bundle, opened
        free_memory()
        return {"row": row, "written": _json([case.written for case in cases])}

    def _decode_alone(self, bundle: Bundle, engine: ProofEngine) -> list[Generation]:
        """Generate autoregressively, which depends on fewer inputs: a cached step of its own."""

        def decode() -> list[dict[str, Any]]:
            found = tokens.decode_all(bundle, self.prompts, self.inputs.max_new_tokens, True, self.sources)
            return [asdict(each) for each in found]

        graphs = ["verify"] if self.sources is None else ["verify", ENCODE_SOURCE]
        decided = self._generation(engine.entry, _OF_THE_TARGET, graphs)
        found = self.steps.result(f"decoding alone on {engine.lowered.name}", decided, decode)
        return [Generation(**each) for each in found]


_OF_THE_TARGET = (
    "batch_size", "max_length", "prefill_chunk", "decoding", "method", "eos_token_ids", "vocabulary_size",
    "source",
)  # fmt: skip
"""Fields of a manifest on which autoregressive decoding depends."""


def _json(written: Sequence[tokens.GeneratedTokens]) -> list[dict[str, Any]]:
    return [asdict(each) for each in written]
