"""What `speccompile train` will do, with every default decided. Frozen; made by `plan_training` alone. No torch."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from speccompile.plan.plan import ModelPlan

PROMPTS, CONVERSATIONS, TEXT = KINDS = ("prompts", "conversations", "text")
"""Of data."""

BUNDLE, TRANSFORMERS, ENDPOINT, GIVEN = MAKERS = ("bundle", "transformers", "endpoint", "given")
"""Of answers."""


@dataclass(frozen=True)
class DataPlan:
    """What is learnt from.

    kind: "prompts", "conversations" or "text". files: local ones, in the order of the recipe, or one name of the Hub.
    answers: who gives what follows a prompt: "bundle", "transformers", "endpoint", or "given" where the data has it.
    prompts: how many are answered at most, drawn by the seed; None for all. temperature, max_new_tokens, batch_size,
    endpoint, endpoint_model: of answers that are made; sampled: share of the prompts that are answered at the
    temperature, the others get the most likely tokens; endpoint_key: the environment variable with its key, None where
    it asks for none. length: tokens of a text at most; longer ones are cut. held_out: share of the documents that is
    kept apart, by a hash of each; or a file of its own. features: "online", or "disk". packing: "buckets" or "packed".
    last_turn: of conversations, that alone is learnt. template: a file in the place of the target's chat template.
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
    """kind: "ce", "fkl", "rkl", "jsd", "tvd", "nla" or "hybrid". beta: of jsd. hard: share of the target's best token
    in what is learnt, 0 for the target's distribution as it is. depth_weights: "decay" (`decay` to the power of the
    depth) or "dpace" (Section A3 of the facts). contexts: "target", "drafter" or "mixed"; `share` of the batches of a
    mixed one has the drafter's. anchors: blocks learnt of a text, by families whose places cost a pass each. drop: of
    kind models, folder of the drafter whose prompts are dropped where it gives the target's answer (Col-BT)."""

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
    """steps or seconds: the budget, one of them. batch_size: texts of a step, of all processes together; accumulate:
    parts in which a step is computed. learning_rate: the peak of AdamW's; matrix_rate: of Muon's, None where AdamW
    trains everything. warmup: steps; final: share of the peak at the end of a cosine. clip: of the gradient's norm.
    precision: "float32" or "bfloat16", of activations: weights are float32. checkpointing: of activations."""

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
    """every: seconds between evaluations. texts: held-out ones that are read. depth: drafts of a simulated round.
    compiled: whether checkpoints are compiled and run; prompts, max_new_tokens: of what is run."""

    every: float
    texts: int
    depth: int
    compiled: bool
    prompts: int
    max_new_tokens: int


@dataclass(frozen=True)
class TrainingPlan:
    """One training.

    kind: of the drafter. target: who is asked. output: the folder that it leaves, which `drafter.model` names. work:
    where data, checkpoints and curves are. begin: folder of the checkpoint to go on from, None for a new drafter, whose
    shape is `sizes`, of a vocabulary of `vocabulary` tokens, None for the target's, with these taps, in this dialect.
    depth: drafts behind one another that are learnt. keep: checkpoints that stay; dtype: of the weights that are left.
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
