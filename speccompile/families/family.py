"""What a way of drafting tells the recipe: its keys, what it goes together with, and what it reads. No torch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from speccompile.families.dialects import Dialect
from speccompile.families.head import HeadFolder, HeadPlan, HeadRequest

Row = Mapping[str, tuple[str, ...]]
"""Dimension -> words, in tables of what goes together."""

BOTH = ("greedy", "sampling")
FIXED = ("chain", "static")

OWN, TARGET, HEAD, NOTHING = "own", "target", "head", "nothing"
"""Whose weights a family drafts with: a language model's, the target's alone, those of a head that was made for the
target, which reads what lies inside it, or none."""


def certain(tree: tuple[str, ...], method: tuple[str, ...]) -> Row:
    """Drafts that are the drafter's best: their tokens stand for themselves, so both decodings can judge them."""
    return {"decoding": BOTH, "method": method, "tree": tree, "sample": ("false",)}


def sampled(tree: tuple[str, ...], method: tuple[str, ...]) -> Row:
    """Drafts that are drawn: their probabilities are needed, and a target that samples."""
    return {"decoding": ("sampling",), "method": method, "tree": tree, "sample": ("true",)}


GROWING: tuple[Row, ...] = (
    certain((*FIXED, "dynamic"), ("exact",)),
    sampled(FIXED, ("exact",)),
    certain(FIXED, ("typical", "top_k")),
    certain(("chain",), ("lenience",)),
    sampled(("chain",), ("lenience",)),
)
"""Of drafters that read their own drafts, token by token: any shape, one that grows among them."""

IN_BLOCKS: tuple[Row, ...] = (
    certain(("chain",), ("exact",)),
    sampled(("chain",), ("exact",)),
    certain(("chain",), ("typical", "top_k")),
    certain(("chain",), ("lenience",)),
    sampled(("chain",), ("lenience",)),
)
"""Of drafters that make all drafts in one pass, which follow each other."""


@dataclass(frozen=True)
class Family:
    """A row of the registry.

    keys: of the recipe's section `drafter`, beside `kind`. needs: those without a default: what they are, and an
    example. rows: which trees, decodings and methods go together. weights: one of the words above. summary: a line for
    the README's table. graphs: how the round is cut where the recipe does not say.

    read_mask: of a language model that reads mask tokens: its folder and vocabulary -> that token; raises
    CheckpointError.

    For heads, dialects: in the order in which they are tried; read: a folder in one of them, and by what it was
    recognised -> its description; raises CheckpointError, or RecipeError for what the recipe asks of it. reads_caches:
    the target's, and not its features alone. threshold: the probability of a draft below which drafting ends, where
    drafter.threshold does not say; keeps_unsure: the first such draft is verified all the same. pairs: its rows hold a
    feature and the next token.
    """

    kind: str
    summary: str
    keys: tuple[str, ...]
    rows: tuple[Row, ...]
    weights: str = NOTHING
    needs: Mapping[str, tuple[str, str]] | None = None
    graphs: str = "separate"
    read_mask: Callable[[Path, int], int] | None = None
    dialects: tuple[Dialect, ...] = ()
    read: Callable[[HeadFolder, HeadRequest, Dialect, str], HeadPlan] | None = None
    reads_caches: bool = False
    threshold: float | None = None
    keeps_unsure: bool = False
    pairs: bool = False
