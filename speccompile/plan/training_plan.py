"""Plan of `speccompile train`, with every default decided. Frozen; only `plan_training` makes it. No torch."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from speccompile.plan.plan import ModelPlan

PROMPTS, CONVERSATIONS, TEXT = KINDS = ("prompts", "conversations", "text")
"""Kinds of data."""

BUNDLE, TRANSFORMERS, ENDPOINT, GIVEN = MAKERS = ("bundle", "transformers", "endpoint", "given")
"""Sources of answers."""


@dataclass(frozen=True)
class DataPlan:
    """Training data.

    kind: "prompts", "conversations" or "text". files: local files, in the order of the recipe, or one dataset of the
    Hub. answers: source of the answers to prompts: "bundle", "transformers", "endpoint", or "given" in the data.
    prompts: maximum number of prompts to answer, drawn by the seed; None for all. temperature, max_new_tokens,
    batch_size, endpoint, endpoint_model: of generated answers; sampled: share of the prompts that are answered at the
    temperature, the rest greedily; endpoint_key: environment variable with the API key, None without one. length:
    maximum tokens of a text; longer ones are truncated. held_out: share of the documents in the held-out set, selected
    by hash, or a separate file. features: "online" or "disk". packing: "buckets" or "packed". last_turn: the loss mask
    has the last turn of a conversation alone. template: a file that replaces the target's chat template.
    """

    kind: str
    files: tuple[str, ...]
    answers: str
    temperature: float
    max_new_tokens: int
    batch_size: int
    endpoint: str | None
    endpoint_model: str | None
    length: int
    held_out: float | Path
    features: str
    packing: str
    last_turn: bool
    endpoint_key: str | None = None
    template: Path | None = None
    prompts: int | None = None
    sampled: float = 1.0


@dataclass(frozen=True)
class LossPlan:
    """Loss. kind: "ce", "fkl", "rkl", "jsd", "tvd", "nla" or "hybrid". beta: of jsd. hard: share of the target's most
    probable token in the labels, 0 for the target's distribution alone. depth_weights: "decay" (`decay` to the power of
    the depth) or "dpace" (`train.objective.dpace`). contexts: "target", "drafter" or "mixed": author of the texts, by
    the drafter in a `share` of the batches of "mixed". anchors: blocks to train per text, for methods with a pass per
    anchor. drop: for kind models, folder of the drafter whose correctly answered prompts are dropped (Col-BT)."""

    kind: str
    beta: float
    hard: float
    depth_weights: str
    decay: float
    contexts: str
    share: float
    anchors: int
    drop: str | None


@dataclass(frozen=True)
class SchedulePlan:
    """Optimization. steps or seconds: the budget, one of them. batch_size: texts per step over all processes;
    accumulate: gradient accumulation steps. learning_rate: AdamW's peak; matrix_rate: Muon's peak, None if AdamW trains
    everything. warmup: steps; final: share of the peak at the end of the cosine. clip: maximum gradient norm.
    precision: "float32" or "bfloat16", of activations; weights are float32. checkpointing: of activations."""

    steps: int | None
    seconds: float | None
    batch_size: int
    accumulate: int
    optimizer: str
    learning_rate: float
    matrix_rate: float | None
    weight_decay: float
    warmup: int
    final: float
    clip: float
    precision: str
    checkpointing: bool


@dataclass(frozen=True)
class EvaluatePlan:
    """Evaluation. every: seconds between evaluations. texts: number of held-out texts. depth: drafts of a simulated
    round. compiled: whether checkpoints are compiled and run; prompts, max_new_tokens: of these runs."""

    every: float
    texts: int
    depth: int
    compiled: bool
    prompts: int
    max_new_tokens: int


@dataclass(frozen=True)
class TrainingPlan:
    """A training.

    kind: of the drafter. target: the teacher. output: folder of the trained drafter, which `drafter.model` names. work:
    folder of data, checkpoints and curves. begin: folder of the initial checkpoint, None for a new drafter. sizes,
    vocabulary (number of draft tokens, None for the target's), taps and dialect: of a new drafter. depth: number of
    consecutive drafts to train. keep: number of checkpoints to keep; dtype: of the saved weights.
    """

    name: str
    kind: str
    target: ModelPlan
    max_length: int
    output: Path
    work: Path
    begin: Path | None
    sizes: Mapping[str, int | str]
    vocabulary: int | None
    taps: tuple[str, ...]
    dialect: str
    depth: int
    data: DataPlan
    loss: LossPlan
    schedule: SchedulePlan
    evaluate: EvaluatePlan
    save_every: float
    keep: int
    dtype: str
    seed: int
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        shown = asdict(self) | {"target": self.target.to_json(), "sizes": dict(self.sizes)}
        return {key: _written(value) for key, value in shown.items()}


def _written(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _written(each) for key, each in value.items()}
    return str(value) if isinstance(value, Path) else value
