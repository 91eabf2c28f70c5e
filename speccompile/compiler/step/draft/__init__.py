"""Drafters: given the accepted path, propose the next window. What the families share; each of them is a folder in
`speccompile.drafters`.

reading     what drafts token by token, with caches: `language` does so by a language model, `paired` by features,
            `target_layers` by some of the target's layers, over its caches
fixed       drafts of a constant shape; `dynamic`: a tree that grows
cascade     what a lookup adds to any drafter; `vertical`: a language model for which one drafts
block       all drafts in one pass, by a block; `masked`: by mask rows behind the text
children    from logits to drafts: the best tokens, or drawn ones; `vocabulary`: a drafter's own
lookup      what stood in the text before; `occurrences`: every place of it, and of a `ring` of earlier answers; `votes`
            of all of them
layers      transformer layers of heads, behind the attention hook

A drafter is a module with this interface, which is all that the export and the runtime know of it:

tokens      drafts per round, N
extra_rows  rows of the target's window behind the drafts that are never accepted, whose features it reads
catch_up    width of its catch-up when decoding; 0 when it keeps no caches of its own
is_recurrent  whether it has states, and so reads whole paths: one token more than others when decoding
pairs       whether its rows hold a feature and the token behind it
taps        what it reads of the target besides tokens: names as in `step.taps`
successors  how many of the target's best tokens behind every row it reads, K
shape       how its drafts follow each other: a constant tree, a chain included, or None where it makes the tree
candidates  C, among which it draws each draft, where it samples; 0 where its drafts are certain
states      its buffers: (name, dtype, shape, whether by row), kept from round to round
reads_lines  whether it reads all lines of a state, whatever rows a run is over, and has to know which these are
borrowed    caches of the target that it reads, as they are after the round's commit
forward     (Accepted, states and borrowed caches) -> Drafted
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from speccompile.compiler.step.sampling import Settings
from speccompile.tree import Tree


class State(NamedTuple):
    """A buffer that is kept from round to round and updated in place. shape: with all rows of a batch; by_row: whether
    it has a line for each of them, and a run over some rows is given their lines alone."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    is_batched: bool = True


class Accepted(NamedTuple):
    """What a drafter is told of the round; see `contract`. What it does not ask for is None.

    path int64 [B, W + 1]; n_path, length (before this round) int64 [B]; catch_up int64 [C] = 0, 1, .., where it has
    caches; features float32 [B, W, F], where it has taps; successors int64 [B, R, K] and row_tokens int64 [B, R], where
    it asks for them; settings and uniforms float32 [B, N], where it samples; batch_rows int64 [B], the number of each
    row in the batch, where it reads all lines of a state and there are several.
    """

    path: Tensor
    n_path: Tensor
    length: Tensor
    catch_up: Tensor | None = None
    features: Tensor | None = None
    successors: Tensor | None = None
    row_tokens: Tensor | None = None
    settings: Settings | None = None
    uniforms: Tensor | None = None
    batch_rows: Tensor | None = None


class Drafted(NamedTuple):
    """window int64 [B, N + 1]: bonus token, drafts in the order of the tree's nodes. n_total int64 [B]: 1 + drafts.
    states as they were given. parents int64 [B, N + 1], where the drafter makes the tree: nodes after their parents,
    -1 for the root. ids int64 and probs float32 [B, N, C], where it samples: what the children of node i were drawn
    from, one after the other and none twice; rows add up to one, or are zero where a node has no children.
    """

    window: Tensor
    n_total: Tensor
    states: list[Tensor]
    parents: Tensor | None = None
    ids: Tensor | None = None
    probs: Tensor | None = None


class Drafter(nn.Module, ABC):
    """Base of all families; see the module's docstring."""

    tokens: int
    n_unaccepted_rows: int = 0
    catch_up: int = 0
    is_recurrent: bool = False
    pairs_next_token: bool = False
    taps: tuple[str, ...] = ()
    target_top_k: int = 0
    reads_whole_batch: bool = False
    shape: Tree | None
    candidates: int = 0

    @abstractmethod
    def states(self) -> list[State]:
        """The buffers, in the order in which `forward` takes and returns them."""

    def target_caches(self) -> list[State]:
        """Caches of the target that it reads and leaves as they are; they follow the states."""
        return []

    @abstractmethod
    def forward(self, accepted: Accepted, states: list[Tensor]) -> Drafted:
        """Propose the window of the next round."""
