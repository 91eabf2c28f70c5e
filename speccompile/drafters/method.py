"""Describe a drafting method as data: its recipe keys, valid combinations, inputs and variants. No torch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from speccompile.drafters.dialects import Dialect
from speccompile.drafters.sizes import Size
from speccompile.errors import CheckpointError
from speccompile.plan.head import HeadFolder, HeadPlan, HeadRequest
from speccompile.plan.plan import DrafterPlan, TreePlan
from speccompile.plan.recipe_source import RecipeSource
from speccompile.tree import Tree

Row = Mapping[str, tuple[str, ...]]
"""A row of a table of valid combinations: dimension -> allowed values."""

ALL_DECODINGS = ("greedy", "sampling")
STATIC_TREE_KINDS = ("chain", "static")

OWN, TARGET, HEAD, MASKS, NOTHING = "own", "target", "head", "masks", "nothing"
"""Weights that a method drafts with: those of a separate language model; the target's alone; those of a head that was
trained for the target and reads its hidden states; the target's with trained mask rows; or none."""

ONE_A_DRAFT, ONE_A_ROUND, NO_RUN = "one a draft", "one a round", "none"
"""Runs of the drafter's own layers in a round."""


def greedy_draft_row(tree: tuple[str, ...], method: tuple[str, ...]) -> Row:
    """Return the row of drafts that are the drafter's most probable tokens: both decodings can verify them."""
    return {"decoding": ALL_DECODINGS, "method": method, "tree": tree, "sample": ("false",)}


def sampled_draft_row(tree: tuple[str, ...], method: tuple[str, ...]) -> Row:
    """Return the row of sampled drafts: verification needs their probabilities and a target that samples."""
    return {"decoding": ("sampling",), "method": method, "tree": tree, "sample": ("true",)}


DYNAMIC_TREE_ROWS: tuple[Row, ...] = (
    greedy_draft_row((*STATIC_TREE_KINDS, "dynamic"), ("exact",)),
    sampled_draft_row(STATIC_TREE_KINDS, ("exact",)),
    greedy_draft_row(STATIC_TREE_KINDS, ("typical", "top_k")),
    greedy_draft_row(("chain",), ("lenience",)),
    sampled_draft_row(("chain",), ("lenience",)),
)
"""Combinations of autoregressive drafters: any tree, dynamic ones included."""

CHAIN_ROWS: tuple[Row, ...] = (
    greedy_draft_row(("chain",), ("exact",)),
    sampled_draft_row(("chain",), ("exact",)),
    greedy_draft_row(("chain",), ("typical", "top_k")),
    greedy_draft_row(("chain",), ("lenience",)),
    sampled_draft_row(("chain",), ("lenience",)),
)
"""Combinations of drafters of a chain."""

ONE_PASS_ROWS: tuple[Row, ...] = (greedy_draft_row(("chain", "dynamic"), ("exact",)), *CHAIN_ROWS[1:])
"""Combinations of drafters whose one pass gives the logits of all depths: a chain, or the best nodes of all trees."""


GREEDY_CHAIN_ROWS: tuple[Row, ...] = tuple(
    greedy_draft_row(("chain",), each) for each in (("exact",), ("typical", "top_k"), ("lenience",))
)
"""Combinations of drafters that make a chain of greedy drafts."""


@dataclass(frozen=True)
class DefaultTree:
    """Draft tree that a method brings, pruned to a number of nodes.

    nodes, top_k: default number of nodes, and default number of the target's most probable tokens that the tree uses.
    prune: (nodes, top_k) -> the tree; raises TreeError if the full tree has fewer nodes of these ranks.
    """

    nodes: int
    top_k: int
    prune: Callable[[int, int], Tree]


@dataclass(frozen=True)
class MethodRequest:
    """Input of `DraftingMethod.decide`. section: the recipe's section `drafter`, with None for keys that are left out;
    tree, tokens: the decided tree and number of drafts; method: of verification; batch_size: batch slots."""

    section: Any
    origin: RecipeSource
    tree: TreePlan
    tokens: int
    method: str
    batch_size: int


@dataclass(frozen=True)
class Incompatibility:
    """A reason, worded for an error message, why a method is unsupported, and the kind to use instead."""

    reason: str
    instead: str


@dataclass(frozen=True)
class FirstLayers:
    """Placeholder for the first layers of the target, as a share of all its layers."""

    share: float


class GivenIndex:
    """Placeholder for the folder of --index."""


class SourceText:
    """Placeholder for the text that a target with an encoder reads; other targets have none."""


@dataclass(frozen=True)
class CompareVariant:
    """A variant of a drafting method that `compare` tries. keys: of the section `drafter`, which may have placeholders;
    `compare` skips the variant if it cannot fill in one of them."""

    name: str
    keys: Mapping[str, Any] = field(default_factory=dict)


def no_taps(layers: int) -> tuple[str, ...]:
    """Return the taps of a drafter that reads no features of the target: none."""
    return ()


@dataclass(frozen=True)
class Training:
    """Training of a method: the keys of the section `train` that it supports, and its defaults.

    sizes: of a new drafter, by their names under `train.shape`, in the order in which `decide_shape` decides them.
    dialects: layouts in which a new drafter can be written, the default first. depth: default number of consecutive
    drafts to train. taps: number of target layers -> default taps. vocabulary: whether a reduced draft vocabulary is
    supported. anchors: default number of blocks to train per text; 0 if one pass trains all positions. depth_decay:
    factor of the loss weight from one draft to the next; None for the common default. learning_rate: AdamW's peak for a
    new drafter without matrices; None for the common default. max_depth_is_trained: whether a new drafter drafts at
    most the trained depth, because it has one head or row per draft. is_depth_independent: whether a draft depends on
    its position alone, as `TrainableDrafter.even`. makes_new: whether training can start from a new drafter; otherwise
    it continues existing weights. refusal: (dialect, taps, sizes) of a new drafter -> (key under `train`, received,
    expected) of an unsupported combination, or None. read_only_dialects: dialects of heads that compile but do not
    train -> the reason. own_text: whether the drafter reads tokens alone, so that it can continue a prompt without the
    target. says_taps: whether the config of a trained head names its taps, even if the original config does not.
    source_sizes: sizes of a new drafter for a target with an encoder, None if it does not learn from one.
    """

    sizes: Mapping[str, Size] = field(default_factory=dict)
    dialects: tuple[str, ...] = ()
    depth: int = 1
    taps: Callable[[int], tuple[str, ...]] = no_taps
    vocabulary: bool = False
    anchors: int = 0
    depth_decay: float | None = None
    learning_rate: float | None = None
    max_depth_is_trained: bool = False
    is_depth_independent: bool = False
    makes_new: bool = True
    refusal: Callable[[str, tuple[str, ...], Mapping[str, int | str]], tuple[str, str, str] | None] | None = None
    read_only_dialects: Mapping[str, str] = field(default_factory=dict)
    own_text: bool = False
    says_taps: bool = False
    source_sizes: Mapping[str, Size] | None = None


@dataclass(frozen=True)
class DraftingMethod:
    """A drafting method in the registry.

    kind: its name in recipes. summary: a line for the table of docs. keys: of the recipe's section `drafter`, besides
    `kind`. required_keys: keys without a default -> (description, example). rows: valid combinations of tree, decoding
    and verification method. weights: OWN, TARGET, HEAD, MASKS or NOTHING. graphs: "separate" or "fused", if the recipe
    does not say. default_tree: the tree that it drafts unless the recipe asks for another. target_top_k: number of the
    target's most probable next tokens that it reads at every position.

    read_mask: for language models that read mask tokens: (folder, vocabulary size) -> the mask token; raises
    CheckpointError.

    For heads, dialects: in the order in which they are tried; read: (folder, request, dialect, evidence) -> the
    description of the head; raises CheckpointError, or RecipeError for a request that the head cannot meet.
    reads_target_cache: whether it reads the target's KV cache. threshold: default probability of a draft below which
    drafting ends; verifies_low_confidence: whether the first such draft is verified all the same. pairs_next_token: its
    cache rows hold a feature and the next token. best_nodes: whether one pass gives the logits of all depths, for trees
    of the best nodes (`tree: {kind: blocks}`). drafts_on_host: no graph drafts, the host writes the window of every
    round. not_found_error: returns the error for a folder in none of the dialects. training: None if it cannot be
    trained; trains_as: the kind whose training it shares.

    drafts: False for kind none. section: keys that no other kind has, as pydantic fields: name -> (annotation,
    `plan.section.optional(..)`); their values are in the plan's `options`. decide: returns the method's fields of
    `DrafterPlan`; raises RecipeError. looks_up: whether it can look up in the text for another drafter; elsewhere: the
    reason why not, for kinds of which users may expect it. over_texts: whether `tokenizer: text` is supported. runs:
    ONE_A_DRAFT, ONE_A_ROUND or NO_RUN, by which a round's time is predicted; None without a formula. reads_sources:
    whether it drafts for a target with an encoder. target_states, own_states: why it does not support recurrent states
    of the target, or of its draft model.
    with_images: whether it drafts behind pictures; reads_images: whether it reads their rows or positions itself, so
    that its drafts there have a proof of their own. on_axes: (the drafter's plan) -> why it does not draft for a target
    whose pictures have positions on three axes, None if it does. aliases: other names, in lower case with underscores.
    tune_sizes: values of the keys that size its drafts, which `tune` tries; compare_variants: variants that `compare`
    tries.
    """

    kind: str
    summary: str
    keys: tuple[str, ...]
    rows: tuple[Row, ...]
    weights: str = NOTHING
    required_keys: Mapping[str, tuple[str, str]] | None = None
    graphs: str = "separate"
    default_tree: DefaultTree | None = None
    target_top_k: int = 0
    read_mask: Callable[[Path, int], int] | None = None
    dialects: tuple[Dialect, ...] = ()
    read: Callable[[HeadFolder, HeadRequest, Dialect, str], HeadPlan] | None = None
    reads_target_cache: bool = False
    threshold: float | None = None
    verifies_low_confidence: bool = False
    pairs_next_token: bool = False
    best_nodes: bool = False
    drafts_on_host: bool = False
    not_found_error: Callable[[HeadFolder, HeadRequest], CheckpointError] | None = None
    training: Training | None = None
    trains_as: str = ""
    drafts: bool = True
    section: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    decide: Callable[[MethodRequest], Mapping[str, Any]] | None = None
    looks_up: bool = False
    elsewhere: str = ""
    over_texts: bool = False
    runs: str | None = None
    target_states: Incompatibility | None = None
    own_states: Incompatibility | None = None
    with_images: bool = False
    reads_images: bool = False
    on_axes: Callable[[DrafterPlan], str | None] | None = None
    tune_sizes: tuple[Mapping[str, int], ...] = ()
    aliases: tuple[str, ...] = ()
    reads_sources: bool = False
    compare_variants: tuple[CompareVariant, ...] = ()
