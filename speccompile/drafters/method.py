"""Describe a drafting method, as data: its keys, what it goes with, what it reads, how it is tried. No torch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from speccompile.drafters.dialects import Dialect
from speccompile.drafters.sizes import Size
from speccompile.errors import CheckpointError
from speccompile.plan.head import HeadFolder, HeadPlan, HeadRequest
from speccompile.plan.plan import TreePlan
from speccompile.plan.recipe_source import RecipeSource
from speccompile.tree import Tree

Row = Mapping[str, tuple[str, ...]]
"""Dimension -> words, in tables of what goes together."""

ALL_DECODINGS = ("greedy", "sampling")
STATIC_TREE_KINDS = ("chain", "static")

OWN, TARGET, HEAD, MASKS, NOTHING = "own", "target", "head", "masks", "nothing"
"""Whose weights a family drafts with: a language model's, the target's alone, those of a head that was made for the
target, which reads what lies inside it, the target's with rows that were trained for it, or none."""


def greedy_draft_row(tree: tuple[str, ...], method: tuple[str, ...]) -> Row:
    """Drafts that are the drafter's best: their tokens stand for themselves, so both decodings can judge them."""
    return {"decoding": ALL_DECODINGS, "method": method, "tree": tree, "sample": ("false",)}


def sampled_draft_row(tree: tuple[str, ...], method: tuple[str, ...]) -> Row:
    """Drafts that are drawn: their probabilities are needed, and a target that samples."""
    return {"decoding": ("sampling",), "method": method, "tree": tree, "sample": ("true",)}


DYNAMIC_TREE_ROWS: tuple[Row, ...] = (
    greedy_draft_row((*STATIC_TREE_KINDS, "dynamic"), ("exact",)),
    sampled_draft_row(STATIC_TREE_KINDS, ("exact",)),
    greedy_draft_row(STATIC_TREE_KINDS, ("typical", "top_k")),
    greedy_draft_row(("chain",), ("lenience",)),
    sampled_draft_row(("chain",), ("lenience",)),
)
"""Of drafters that read their own drafts, token by token: any shape, one that grows among them."""

CHAIN_ROWS: tuple[Row, ...] = (
    greedy_draft_row(("chain",), ("exact",)),
    sampled_draft_row(("chain",), ("exact",)),
    greedy_draft_row(("chain",), ("typical", "top_k")),
    greedy_draft_row(("chain",), ("lenience",)),
    sampled_draft_row(("chain",), ("lenience",)),
)
"""Of drafters that make all drafts in one pass, which follow each other."""


GREEDY_CHAIN_ROWS: tuple[Row, ...] = tuple(
    greedy_draft_row(("chain",), each) for each in (("exact",), ("typical", "top_k"), ("lenience",))
)
"""Of drafters whose drafts are certain, and follow each other."""


@dataclass(frozen=True)
class DefaultTree:
    """The tree of drafts that a family has itself, pruned to a number of nodes.

    nodes, top_k: how many, and how many of the target's best tokens it reads, where the recipe does not say. prune:
    both -> the tree; raises TreeError where there are not so many nodes of such ranks.
    """

    nodes: int
    top_k: int
    prune: Callable[[int, int], Tree]


@dataclass(frozen=True)
class MethodRequest:
    """From what a family decides its own part of the plan. written: the recipe's section `drafter`, keys that are left
    out being None; tree, tokens: what was decided of its drafts; method: of verification; batch_size: rows."""

    section: Any
    origin: RecipeSource
    tree: TreePlan
    tokens: int
    method: str
    batch_size: int


@dataclass(frozen=True)
class Incompatibility:
    """Why something does not go with a family, in the words of an error, and the kind to take instead."""

    reason: str
    instead: str


@dataclass(frozen=True)
class FirstLayers:
    """So many of the target's layers, as a share of all of them."""

    share: float


class GivenIndex:
    """The folder of --index."""


@dataclass(frozen=True)
class CompareVariant:
    """A variant of a drafting method that `compare` tries. keys: of the section `drafter`; where the value of one
    cannot be filled in for a recipe, the variant is left out."""

    name: str
    keys: Mapping[str, Any] = field(default_factory=dict)


def no_taps(layers: int) -> tuple[str, ...]:
    """Of what reads nothing that lies inside the target."""
    return ()


@dataclass(frozen=True)
class Training:
    """How a family is trained: what the section `train` may say of it, and what it is where it says nothing.

    sizes: of a new drafter, by their names under `train.shape`, in the order in which `decide_sizes` decides them.
    dialects: in which a new one can be written, the first one by default. depth: drafts behind one another that are
    learnt. taps: of a target with so many layers. vocabulary: whether it may have one of its own. anchors: blocks that
    are learnt of a text, 0 where all places are at the price of one. decay: by how much each draft counts less than the
    one before, None for what all have by default. rate: AdamW's at its peak, for a new one that has no matrices to
    train, None for what all have. bounded: whether a new one drafts no further than it has learnt, as it has a head or
    a row for every draft. even: whether a draft depends on its place alone, as in `Learner`. makes_new: whether there
    can be a new one; else what there is is trained on. refusal: what is wrong with a new one whose parts are all
    right each, as (key under `train`, received, expected); taps and sizes as in `Wanted`. unwritable: dialects in which
    there are heads that can be read and not be trained on, and why. own_text: whether it reads tokens alone, and so can
    go on from a prompt without the target; says_taps: whether folders say what they read once they were trained,
    whether or not they did before.
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


@dataclass(frozen=True)
class DraftingMethod:
    """A row of the registry.

    keys: of the recipe's section `drafter`, beside `kind`. needs: those without a default: what they are, and an
    example. rows: which trees, decodings and methods go together. weights: one of the words above. summary: a line for
    the README's table. graphs: how the round is cut where the recipe does not say. successors: how many of the target's
    best tokens behind every row it reads.

    own_tree: where it has one, which it drafts unless the recipe asks for another shape.

    read_mask: of a language model that reads mask tokens: its folder and vocabulary -> that token; raises
    CheckpointError.

    For heads, dialects: in the order in which they are tried; read: a folder in one of them, and by what it was
    recognised -> its description; raises CheckpointError, or RecipeError for what the recipe asks of it. reads_caches:
    the target's, and not its features alone. threshold: the probability of a draft below which drafting ends, where
    drafter.threshold does not say; keeps_unsure: the first such draft is verified all the same. pairs: its rows hold a
    feature and the next token. by_host: no graph drafts, the host writes the window of every round. lacking: what is
    said of a folder in none of the dialects. training: of those that learn; trains_as: the kind whose training it has.

    drafts: whether there are any. section: those of its keys that no other kind has, as pydantic fields: name ->
    (annotation, `plan.section.optional(..)`); what is written there is in the plan's `options`. decide: its own fields
    of `DrafterPlan`; raises RecipeError. looks_up: whether it can look up in the text for another drafter; elsewhere:
    why it cannot, where somebody might expect it. target_states, own_states: what states of the target, or of a model
    that drafts, do not allow. aliases: what else people call it, in lower case with underscores. sizes: of a tree of
    its own, which `tune` tries; tried: what `compare` does.
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
    drafts_on_host: bool = False
    not_found_error: Callable[[HeadFolder, HeadRequest], CheckpointError] | None = None
    training: Training | None = None
    trains_as: str = ""
    drafts: bool = True
    section: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    decide: Callable[[MethodRequest], Mapping[str, Any]] | None = None
    looks_up: bool = False
    elsewhere: str = ""
    target_states: Incompatibility | None = None
    own_states: Incompatibility | None = None
    tune_sizes: tuple[Mapping[str, int], ...] = ()
    aliases: tuple[str, ...] = ()
    compare_variants: tuple[CompareVariant, ...] = ()
