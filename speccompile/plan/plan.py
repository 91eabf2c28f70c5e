"""Plan of a build, with every default decided. Frozen; only `make_plan` makes it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from speccompile.machine.formats.image_settings import ImageSettings
from speccompile.plan.adapters import AdaptersPlan
from speccompile.plan.caches import MAX_DIVERGENCE, CachePlan
from speccompile.plan.head import HeadPlan
from speccompile.plan.layers import LayersPlan
from speccompile.plan.precisions import IN_BLOCKS
from speccompile.plan.prefixes import PrefixPlan
from speccompile.plan.sources import SourceFacts, SourcePlan, without_none

TEXT = "text"
"""Value of `drafter.tokenizer` for drafts over texts, which the host turns into the target's tokens."""
RETRIEVAL = "retrieval"
"""Name of the kind whose drafts come from the host."""


@dataclass(frozen=True)
class CheckpointFacts:
    """Facts about a model from its checkpoint's files. positions: None if the config sets no limit; layers,
    hidden_size: None if it does not say. left_out: number of tensors of a multimodal model outside of its text decoder.
    quantization: readable description of the quantization. groups_of_4_bits: weights per scale, -1 for all inputs of an
    output, of 4-bit integers in contiguous groups; otherwise None. states: readable description of the recurrent state,
    None without any. dtype: the precision of most of its weights, if these are floats. has_codes: matrices are codes of
    a GGUF file that kernels can read; no merged adapter, and gate and up of experts both in blocks, or in one type.
    source: of an encoder-decoder."""

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
    dtype: str | None = None
    has_codes: bool = False
    source: SourceFacts | None = None

    def to_json(self) -> dict[str, Any]:
        return without_none(asdict(self) | {"eos_token_ids": list(self.eos_token_ids)}, "source")


@dataclass(frozen=True)
class ModelPlan:
    """A model: `reference` as written, `commit` if it comes from the Hub, `files` relative to `folder`."""

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
    """Tree of the drafts.

    kind: "chain", "static" or "dynamic". parents: of all nodes, the root's -1 first; None for a dynamic tree. depth:
    maximum number of drafts of a round that can be accepted. top_k: of dynamic trees, the number of expanded nodes of a
    depth, and of tokens per node; None for the best of all, and for votes. Merged drafters each draft this tree.
    """

    kind: str
    parents: tuple[int, ...] | None
    depth: int
    top_k: int | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"parents": None if self.parents is None else list(self.parents)}


@dataclass(frozen=True)
class LookupPlan:
    """A lookup for a drafter, in the text, or by the host in an index. kind: of the standalone lookup drafter. tokens:
    maximum number of copied tokens; ngram: maximum length of a match; match: minimum length of a match that passes a
    gate."""

    kind: str
    tokens: int
    ngram: int
    match: int = 1

    @property
    def by_host(self) -> bool:
        """Return whether the host looks up, and no graph."""
        return self.kind == RETRIEVAL


@dataclass(frozen=True)
class InnerPlan:
    """The lookup that drafts for a drafter, inside its graph (vertical cascade). passes: number of passes of that
    drafter, each over `tokens` looked-up tokens; lenience: minimum ratio of the probability of a looked-up token to the
    drafter's highest that accepts it."""

    kind: str
    tokens: int
    ngram: int
    passes: int
    lenience: float


@dataclass(frozen=True)
class CascadePlan:
    """Lookups that add to a drafter. tree: of the drafter's drafts. then: lookup of tokens after them; gate: lookup of
    tokens that replace them."""

    tree: TreePlan
    then: LookupPlan | None = None
    gate: LookupPlan | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"tree": self.tree.to_json()}


@dataclass(frozen=True)
class RetrievalPlan:
    """Drafts that the host retrieves. reference: of the index as written; folder: of the index; header: hash of the
    index's header file; asked: minimum and maximum number of tokens to search for, and the number of occurrences that
    vote. All are None if only a proposer drafts."""

    reference: str | None
    folder: Path | None
    header: str | None
    asked: tuple[int, int, int] | None

    def to_json(self) -> dict[str, Any]:
        return {"reference": self.reference, "header": self.header, "asked": list(self.asked or ()) or None}


@dataclass(frozen=True)
class SuffixPlan:
    """Parameters of suffix drafting. match: maximum length of a suffix match; a match of m tokens drafts
    factor * m + offset tokens. look_again: match again after every draft. remember: number of tokens of earlier answers
    that persist, over all batch slots; 0 for none."""

    match: int
    factor: float
    offset: float
    look_again: bool
    remember: int


@dataclass(frozen=True)
class DrafterPlan:
    """The drafter. tokens: drafts per round, all branches of all models together (0 for kind none). sample: drafts are
    sampled instead of the most probable tokens. models: one for kind model, several for kind models. layers: of the
    target, for layer_skip. head: for kinds that were made for one target. threshold: confidence below which drafting
    ends early, None for no threshold. mask_token: of a language model that drafts by mask tokens. successors: number of
    the target's most probable next tokens that it reads at every position. lookahead: (W, N, G), columns of the window,
    tokens of an n-gram, and n-grams to verify. inner: lookup that drafts for the drafter. cascade: lookups that add to
    it; tokens and tree then include their tokens. retrieval: source of the host's drafts, for kind retrieval, for a
    gate and for drafts over texts. suffix: for kind suffix. tokenizer: how its tokens become the target's, if its
    tokenizer is another one.
    options: values of keys that no other kind has, as JSON values.
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
    tokenizer: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def over_texts(self) -> bool:
        """True if its model runs by itself and the host turns its texts into drafts: no graph drafts."""
        return self.tokenizer == TEXT

    @property
    def own(self) -> "DrafterPlan":
        """Return the drafter without its cascade."""
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
            **({} if self.tokenizer is None else {"tokenizer": self.tokenizer}),
            **({"options": dict(self.options)} if self.options else {}),
        }


@dataclass(frozen=True)
class VerifyPlan:
    """The acceptance rule. parameters: of an approximate rule, by name. exact: whether the output is the target's: the
    same tokens in greedy decoding, the same distribution in sampling."""

    method: str
    exact: bool
    parameters: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class PrecisionPlan:
    """Precision of an engine's weights and computation. block_size: weights per scale, if a precision needs it."""

    target: str
    drafter: str | None
    block_size: int | None

    def words(self) -> dict[str, str]:
        """Return part -> precision for "target", and for "drafter" if it has weights."""
        return {"target": self.target} | ({"drafter": self.drafter} if self.drafter else {})

    def block_size_of(self, word: str | None) -> int | None:
        """Return the block size of one of these precisions, None if its weights share no scales in blocks."""
        return self.block_size if word == IN_BLOCKS else None


@dataclass(frozen=True)
class EnginePlan:
    """An engine to build. name: unique in the bundle. entry: index in the recipe's list, of which one entry may name
    several compute capabilities. defer: leave the build to `speccompile finish`."""

    entry: int
    name: str
    backend: str
    provider: str
    compute_capability: str | None
    precision: PrecisionPlan
    defer: bool = False


@dataclass(frozen=True)
class ProvePlan:
    """The proof. prompts: file of prompts (None: the build's default prompts); held_out: file of texts that measure
    quality (None: the prompts). reference, held_out_reference: the paths of these files as written in the recipe.
    max_encoder_divergence: largest loss by the precision of the encoder of pictures, see MAX_DIVERGENCE."""

    prompts: Path | None
    max_new_tokens: int
    reference: str | None = None
    held_out: Path | None = None
    held_out_reference: str | None = None
    max_encoder_divergence: float = MAX_DIVERGENCE

    def to_json(self) -> dict[str, Any]:
        named = {"prompts": self.reference, "held_out": self.held_out_reference}
        return {**named, "max_new_tokens": self.max_new_tokens}


@dataclass(frozen=True)
class Plan:
    """All decisions of a build. Lengths are in tokens. decoding: "greedy" or "sampling".

    graphs: "separate" (verify, draft) or "fused" (step; verify for autoregressive decoding). constraints: whether the
    host may restrict the allowed tokens. adapters: None without slots for them. source: of a target with an encoder.
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
    caches: CachePlan = field(default_factory=CachePlan)
    adapters: AdaptersPlan | None = None
    prefixes: tuple[PrefixPlan, ...] = ()
    images: ImageSettings | None = None
    source: SourcePlan | None = None

    def to_json(self) -> dict[str, Any]:
        """Return every decided value and nothing that depends on the machine."""
        return {
            "name": self.name,
            "target": self.target.to_json(),
            "drafter": self.drafter.to_json(),
            "decoding": self.decoding,
            "graphs": self.graphs,
            "verify": self.verify.to_json(),
            # present only if asked for: bundles without stay the same, byte for byte
            **({"constraints": True} if self.constraints else {}),
            **({"caches": self.caches.to_json()} if self.caches != CachePlan() else {}),
            **({} if self.adapters is None else {"adapters": self.adapters.to_json()}),
            **({} if self.source is None else {"source": self.source.to_json()}),
            **({"prefixes": [prefix.to_json() for prefix in self.prefixes]} if self.prefixes else {}),
            **({} if self.images is None else {"images": self.images.to_json()}),
            "max_length": self.max_length,
            "batch_size": self.batch_size,
            "prefill_chunk": self.prefill_chunk,
            "engines": [asdict(engine) for engine in self.engines],
            "prove": self.prove.to_json(),
            "notes": list(self.notes),
        }
