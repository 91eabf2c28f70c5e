"""Open the plan: the one place of a build where its stages get their inputs out of it."""

from dataclasses import dataclass, replace
from pathlib import Path

from speccompile.bundle.source_section import first_timestamp
from speccompile.compiler.build.cache_acceptance import CacheAcceptanceInputs
from speccompile.compiler.build.distribution_proof import DistributionInputs
from speccompile.compiler.build.image_encoder import EncoderInputs
from speccompile.compiler.build.lowered import LowerInputs
from speccompile.compiler.build.lowered_proof import GraphProofInputs
from speccompile.compiler.build.quality import QualityInputs, TextInputs
from speccompile.compiler.build.round_plan import RoundPlan
from speccompile.compiler.build.tensorrt import BACKENDS, EngineInputs
from speccompile.compiler.build.token_proof import PromptInputs, TokenProofInputs
from speccompile.compiler.build.traced_graphs import TraceInputs
from speccompile.compiler.build.writer import split_writer
from speccompile.compiler.checkpoints.encoder_decoder import hidden_tokens
from speccompile.compiler.checkpoints.gguf.conversion import GGUF_INDEX
from speccompile.compiler.checkpoints.json_files import CONFIG
from speccompile.compiler.models.load import WEIGHT_SUFFIXES, ModelFiles
from speccompile.drafters.token_map import MAP
from speccompile.machine.formats.image_settings import ENCODER_PRECISION
from speccompile.machine.formats.peft import ADAPTER_CONFIG
from speccompile.plan.caches import MAX_ACCEPTANCE_LOSS, MAX_DIVERGENCE
from speccompile.plan.plan import CascadePlan, DrafterPlan, ModelPlan, Plan, RetrievalPlan
from speccompile.recipe.resource_estimate import largest_graph_bytes
from speccompile.recipe.tokenizers import tokenizer_pair


@dataclass(frozen=True)
class ProofInputs:
    """Inputs of the levels of the proof. distributions: None for greedy decoding."""

    graphs: GraphProofInputs
    tokens: TokenProofInputs
    distributions: DistributionInputs | None
    quality: QualityInputs
    acceptance: CacheAcceptanceInputs


@dataclass(frozen=True)
class StageInputs:
    """Inputs of every stage of a build, in their order."""

    prompts: PromptInputs
    texts: TextInputs
    trace: TraceInputs
    lower: LowerInputs
    proof: ProofInputs
    engines: tuple[EngineInputs, ...]
    encoder: EncoderInputs | None
    max_encoder_divergence: float


def open_plan(plan: Plan) -> StageInputs:
    """Return the inputs of every stage of a build."""
    plan, writer = split_writer(plan)
    round_plan = open_round(plan)
    prompts = _prompts(plan)
    return StageInputs(
        prompts,
        TextInputs(prompts, plan.prove.held_out, are_long=round_plan.tree_kind == "chain"),
        round_plan.trace,
        round_plan.lowering(plan.engines),
        ProofInputs(
            _graph_proof(plan, round_plan), _token_proof(plan, round_plan, writer), _distributions(plan, round_plan),
            _quality(plan, round_plan),
            CacheAcceptanceInputs(prompts, plan.prove.max_new_tokens, plan.engines, plan.caches.max_acceptance_loss),
        ),
        _engines(plan),
        None if plan.images is None else EncoderInputs(round_plan.target, plan.images),
        plan.prove.max_encoder_divergence,
    )  # fmt: skip


def open_round(plan: Plan) -> RoundPlan:
    """Return the decisions on which the graphs of a round depend."""
    plan, _ = split_writer(plan)
    images = None if plan.images is None else replace(plan.images, precision=ENCODER_PRECISION)
    return RoundPlan(
        _files(plan.target), tuple(map(_files, plan.drafter.models)), _unnamed(plan.drafter), plan.verify,
        plan.decoding, plan.constraints, plan.graphs, plan.max_length, plan.batch_size, plan.prefill_chunk,
        replace(plan.caches, max_divergence=MAX_DIVERGENCE, max_acceptance_loss=MAX_ACCEPTANCE_LOSS),
        tuple(tokenizer_pair(plan.target, each) for each in plan.drafter.models if plan.drafter.tokenizer == MAP),
        plan.adapters, images, plan.source.max_length if plan.source else 0, _first_timestamp(plan),
        hidden_tokens(plan.target.folder) if plan.source else (),
    )  # fmt: skip


def _first_timestamp(plan: Plan) -> int | None:
    audio = None if plan.source is None else plan.source.facts.audio
    return None if audio is None else first_timestamp(audio.to_json(), plan.target.facts.vocabulary_size)


def _files(model: ModelPlan) -> ModelFiles:
    weights = (
        file for file in model.files if file.suffix in WEIGHT_SUFFIXES or file.name in (GGUF_INDEX, ADAPTER_CONFIG)
    )
    return ModelFiles(model.folder, (Path(CONFIG), *weights), model.facts.vocabulary_size)


def _unnamed(drafter: DrafterPlan) -> DrafterPlan:
    """Return a drafter's part of the plan as stages see it: its models come separately, and what a recipe calls its
    head and its index, and the precision of an engine, decide nothing about its graph."""
    head, retrieval = drafter.head, drafter.retrieval
    if head is not None:
        head = replace(head, reference="", revision=None, commit=None, precision="", notes=())
    if retrieval is not None:
        retrieval = replace(retrieval, reference=None)
    return replace(drafter, models=(), head=head, retrieval=retrieval)


def _prompts(plan: Plan) -> PromptInputs:
    facts = plan.target.facts
    return PromptInputs(
        plan.prove.prompts, facts.vocabulary_size, plan.max_length, plan.prefill_chunk, facts.tokenizer,
        plan.source,
    )  # fmt: skip


def _graph_proof(plan: Plan, round_plan: RoundPlan) -> GraphProofInputs:
    target, drafters = plan.target.facts, [model.facts for model in plan.drafter.models]
    layers = max(facts.layers or 1 for facts in (target, *drafters))
    quantized = {"target": (target.quantization,), "drafter": tuple(facts.quantization for facts in drafters)}
    named = {part: tuple(dict.fromkeys(filter(None, methods))) for part, methods in quantized.items()}
    return GraphProofInputs(round_plan.trace.draft, layers, named)


def _host_drafts(plan: Plan) -> tuple[RetrievalPlan | None, CascadePlan | None]:
    """Return the source of the host's drafts and the cascade that they are part of, None if only graphs draft."""
    retrieval = _unnamed(plan.drafter).retrieval
    return retrieval, None if retrieval is None else plan.drafter.cascade


def _token_proof(plan: Plan, round_plan: RoundPlan, writer: ModelPlan | None) -> TokenProofInputs:
    return TokenProofInputs(
        round_plan.target, plan.max_length, plan.caches.target, plan.prove.max_new_tokens,
        plan.prove.prompts is not None, round_plan.trace.draft, *_host_drafts(plan), plan.engines,
        None if writer is None else _files(writer), plan.images.padded if plan.images else (),
    )  # fmt: skip


def _distributions(plan: Plan, round_plan: RoundPlan) -> DistributionInputs | None:
    if plan.decoding != "sampling":
        return None
    # of a small model of text, whose rows would have another width, and which has no tokens of times and few others
    round_plan = replace(round_plan, images=None, first_timestamp=None, hidden=())
    return DistributionInputs(round_plan, plan.target.facts.weight_bytes, plan.name, *_host_drafts(plan), plan.engines)


def _quality(plan: Plan, round_plan: RoundPlan) -> QualityInputs:
    file = plan.prove.held_out_reference or plan.prove.reference
    return QualityInputs(
        round_plan.target, plan.max_length, plan.batch_size, plan.prefill_chunk, file, plan.engines, plan.caches
    )


def _engines(plan: Plan) -> tuple[EngineInputs, ...]:
    built = {engine.name for engine in plan.engines if engine.backend in BACKENDS and not engine.defer}
    return tuple(
        EngineInputs(
            engine, largest_graph_bytes(plan, engine) if engine.name in built else 0, plan.drafter.tokens,
            plan.prefill_chunk, plan.max_length,
        )
        for engine in plan.engines
    )  # fmt: skip
