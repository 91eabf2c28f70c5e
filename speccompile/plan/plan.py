"""What a build will do, with every default decided. Frozen; made by `make_plan` alone."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from speccompile.plan.head import HeadPlan

RETRIEVAL = "retrieval"
"""Kind of drafts that the host gives."""


@dataclass(frozen=True)
class CheckpointFacts:
    """What a checkpoint's files say about the model. `positions` is None where the config sets no limit, `layers` and
    `hidden_size` where it does not say. left_out: tensors of a multimodal one that are no part of its text decoder.
    quantization: how its weights are quantized, for people; groups_of_4_bits: weights that share a scale, -1 for all of
    an output, where they are integers of 4 bits whose groups lie side by side. states: what of it carries states from
    token to token, None where nothing does."""

    architecture: str
    model_type: str
    vocabulary_size: int
    positions: int | None
    layers: int | None
    eos_token_ids: tuple[int, ...]
    weight_bytes: int
    tokenizer: bool
    hidden_size: int | None = None
    left_out: int = 0
    quantization: str | None = None
    groups_of_4_bits: int | None = None
    states: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"eos_token_ids": list(self.eos_token_ids)}


@dataclass(frozen=True)
class ModelPlan:
    """One model: `reference` as written, `commit` when it comes from the Hub, `files` relative to `folder`."""

    reference: str
    revision: str | None
    commit: str | None
    folder: Path
    files: tuple[Path, ...]
    precision: str
    facts: CheckpointFacts

    def to_json(self) -> dict[str, Any]:
        return {
            "reference": self.reference,
            "revision": self.revision,
            "commit": self.commit,
            "files": [file.as_posix() for file in self.files],
            "precision": self.precision,
            "facts": self.facts.to_json(),
        }


@dataclass(frozen=True)
class TreePlan:
    """How drafts follow each other.

    kind: "chain", "static" or "dynamic". parents: of all nodes, the root's -1 first; for a dynamic tree, None. depth:
    the most drafts that one round can accept. top_k: for dynamic trees, how many nodes are expanded at every depth,
    and by how many tokens each. Drafters that are merged each draft this tree; the window holds all of them.
    """

    kind: str
    parents: tuple[int, ...] | None
    depth: int
    top_k: int | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"parents": None if self.parents is None else list(self.parents)}


@dataclass(frozen=True)
class LookupPlan:
    """What is looked up for a drafter, in the text, or by the host in an index. kind: of the drafter that does so on
    its own. tokens: the most that are copied; ngram: the most tokens of a match; match: the fewest that let it through
    a gate."""

    kind: str
    tokens: int
    ngram: int
    match: int = 1

    @property
    def by_host(self) -> bool:
        """Whether no graph does it."""
        return self.kind == RETRIEVAL


@dataclass(frozen=True)
class InnerPlan:
    """What drafts for a drafter, inside its graph. passes: of that drafter, each over `tokens` guesses; lenience: how
    many times as probable as its best a guess must be that it takes."""

    kind: str
    tokens: int
    ngram: int
    passes: int
    lenience: float


@dataclass(frozen=True)
class CascadePlan:
    """What is drafted beside a drafter. tree: of the drafter's own drafts. then: behind them; gate: in their place."""

    tree: TreePlan
    then: LookupPlan | None = None
    gate: LookupPlan | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"tree": self.tree.to_json()}


@dataclass(frozen=True)
class RetrievalPlan:
    """Drafts that the host gives. reference: of the index as written, folder: where it lies, header: hash of what it
    says of itself; asked: the fewest and the most tokens that are looked for, and how many occurrences vote. All None
    where only a proposer drafts."""

    reference: str | None
    folder: Path | None
    header: str | None
    asked: tuple[int, int, int] | None

    def to_json(self) -> dict[str, Any]:
        return {"reference": self.reference, "header": self.header, "asked": list(self.asked or ()) or None}


@dataclass(frozen=True)
class SuffixPlan:
    """How suffixes draft. match: tokens of the longest; one of m tokens drafts factor * m + offset of them. look_again:
    behind every draft. remember: tokens of earlier answers that are kept, of all rows together; 0 for none."""

    match: int
    factor: float
    offset: float
    look_again: bool
    remember: int


@dataclass(frozen=True)
class LayersPlan:
    """The attention and MLP halves of the target's layers that draft, each in ascending order; never both empty."""

    attention: tuple[int, ...]
    mlp: tuple[int, ...]

    def __str__(self) -> str:
        attention, mlp = (", ".join(map(str, its)) or "none" for its in (self.attention, self.mlp))
        return attention if self.attention == self.mlp else f"attention {attention}; mlp {mlp}"

    @property
    def halves(self) -> int:
        """How many there are."""
        return len(self.attention) + len(self.mlp)

    def to_json(self) -> Any:
        """As a recipe writes it: one list, where each layer has both halves."""
        return list(self.attention) if self.attention == self.mlp else {k: list(v) for k, v in asdict(self).items()}


@dataclass(frozen=True)
class DrafterPlan:
    """The drafter. tokens: drafts per round, all branches of all models together (0 for kind none). models: one for
    kind model, several for kind models. layers: of the target, for layer_skip. sample: drafts are drawn, not the best.
    head: for kinds that were made for one target. threshold: of confidence, below which drafting
    ends early; None for the kind's own. mask_token: of a language model that drafts by mask tokens. successors: how
    many of the target's best tokens behind every row it reads. lookahead: the window's columns, the tokens of an n-gram
    and how many of these are guessed, W, N and G. inner: what drafts for it. cascade: what is drafted
    beside it; tokens and tree are then of everything together. retrieval: what the host drafts from, for the kind of
    this name and for a gate. suffix: for kind suffix. options: what a kind decided that no other has, as JSON takes it.
    """

    kind: str
    tokens: int
    tree: TreePlan
    sample: bool = False
    ngram: int | None = None
    models: tuple[ModelPlan, ...] = ()
    layers: LayersPlan | None = None
    head: HeadPlan | None = None
    threshold: float | None = None
    mask_token: int | None = None
    successors: int = 0
    lookahead: tuple[int, int, int] | None = None
    inner: InnerPlan | None = None
    cascade: CascadePlan | None = None
    retrieval: RetrievalPlan | None = None
    suffix: SuffixPlan | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def own(self) -> "DrafterPlan":
        """The drafter without what is drafted beside it."""
        if self.cascade is None:
            return self
        tree = self.cascade.tree
        return replace(self, tree=tree, tokens=len(tree.parents or ()) - 1, cascade=None)

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "tokens": self.tokens,
            "tree": self.tree.to_json(),
            "sample": self.sample,
            "ngram": self.ngram,
            "models": [model.to_json() for model in self.models],
            "layers": self.layers.to_json() if self.layers else [],
            "head": None if self.head is None else self.head.to_json(),
            "threshold": self.threshold,
            "mask_token": self.mask_token,
            "successors": self.successors,
            "lookahead": None if self.lookahead is None else list(self.lookahead),
            "inner": None if self.inner is None else asdict(self.inner),
            "cascade": None if self.cascade is None else self.cascade.to_json(),
            "retrieval": None if self.retrieval is None else self.retrieval.to_json(),
            "suffix": None if self.suffix is None else asdict(self.suffix),
            **({"options": dict(self.options)} if self.options else {}),
        }


@dataclass(frozen=True)
class VerifyPlan:
    """The rule of acceptance. parameters: of an approximate one, by name. exact: it never changes what comes out, or
    only by chance in sampling, where the distribution is the target's."""

    method: str
    exact: bool
    parameters: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class PrecisionPlan:
    """What an engine stores and computes in. `block_size`: weights that share a scale, where a word needs it."""

    target: str
    drafter: str | None
    block_size: int | None

    def words(self) -> dict[str, str]:
        """Part -> word: "target", and "drafter" when it has weights."""
        return {"target": self.target} | ({"drafter": self.drafter} if self.drafter else {})


@dataclass(frozen=True)
class EnginePlan:
    """One engine to build; `name` is unique in the bundle. `entry`: its place in the recipe's list, which may name
    several compute capabilities. `defer`: leave the build to `speccompile finish`."""

    entry: int
    name: str
    backend: str
    provider: str
    compute_capability: str | None
    precision: PrecisionPlan
    defer: bool = False


@dataclass(frozen=True)
class ProvePlan:
    """The proof: `prompts` is the file (None: the build's own prompts), `reference` the same as written; `held_out` the
    texts on which quality is measured (None: the file of prompts), `held_out_reference` the same as written."""

    prompts: Path | None
    max_new_tokens: int
    reference: str | None = None
    held_out: Path | None = None
    held_out_reference: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "prompts": self.reference,
            "held_out": self.held_out_reference,
            "max_new_tokens": self.max_new_tokens,
        }


@dataclass(frozen=True)
class Plan:
    """Everything that `build` needs to know. Lengths are in tokens. decoding: "greedy" or "sampling".

    graphs: "separate" (verify, draft) or "fused" (step; verify for autoregressive decoding). constraints: whether the
    host may say which tokens are allowed.
    """

    name: str
    target: ModelPlan
    drafter: DrafterPlan
    decoding: str
    graphs: str
    verify: VerifyPlan
    max_length: int
    batch_size: int
    prefill_chunk: int
    engines: tuple[EnginePlan, ...]
    prove: ProvePlan
    notes: tuple[str, ...]
    constraints: bool = False

    @property
    def common_vocabulary_size(self) -> int:
        """How many tokens the target and all models that draft have: they differ in padding alone."""
        return min(model.facts.vocabulary_size for model in (self.target, *self.drafter.models))

    def to_json(self) -> dict[str, Any]:
        """Every decided value and nothing of the machine: the same for the same recipe and files, wherever it runs."""
        return {
            "name": self.name,
            "target": self.target.to_json(),
            "drafter": self.drafter.to_json(),
            "decoding": self.decoding,
            "graphs": self.graphs,
            "verify": self.verify.to_json(),
            # said where it is so: bundles without it stay the same, byte for byte
            **({"constraints": True} if self.constraints else {}),
            "max_length": self.max_length,
            "batch_size": self.batch_size,
            "prefill_chunk": self.prefill_chunk,
            "engines": [asdict(engine) for engine in self.engines],
            "prove": self.prove.to_json(),
            "notes": list(self.notes),
        }
