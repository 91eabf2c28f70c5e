"""Drafters: given the accepted path, propose the next window. Shared parts of the drafting methods; each method is a
folder in `speccompile.drafters`.

network     autoregressive drafters with caches: `language` models, `paired` with features, `target_layers`
fixed       drafts of a constant shape; `dynamic`: a tree that grows
cascade     a lookup added to any drafter; `vertical`: a language model for which a lookup drafts
block       all drafts in one pass, by a block; `masked`: by mask rows after the text
children    from logits to drafts, the best tokens or sampled ones; `vocabulary`: a drafter's own; `layers` of heads
lookup      earlier occurrences in the text; `occurrences`: in the text and in a `ring` of answers; `votes` of them
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from speccompile.compiler.step.media_rows import MediaRows
from speccompile.compiler.step.sampling import Settings
from speccompile.contract import FLOAT_CACHE
from speccompile.tree import Tree


class State(NamedTuple):
    """A buffer that keeps its content between rounds and is updated in place. shape: for the whole batch; is_batched:
    it has a row for each batch slot, and a run over some slots receives their rows alone. cache: dtype of stored keys
    and values, one of `contract.CACHE_DTYPES`."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    is_batched: bool = True
    cache: str = FLOAT_CACHE


class Accepted(NamedTuple):
    """Input of a drafter from the round; see `contract`. A field that it does not request is None.

    path int64 [B, W + 1]; n_path, length (before this round) int64 [B]; catch_up int64 [C] = 0, 1, .., with caches;
    features float32 [B, W, F], with taps; successors int64 [B, R, K] and row_tokens int64 [B, R], if requested;
    settings and uniforms float32 [B, N], if it samples; batch_rows int64 [B], the batch slot of each row, if it reads
    all batch slots of a state and there are several; source_length int64 [B], if it reads a source; source_tokens int64
    [B, E], if it looks up in one; media, media_next, media_offsets, media_behind: see `bundle.media`, as far as it
    reads pictures.
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
    source_length: Tensor | None = None
    source_tokens: Tensor | None = None
    media: Tensor | None = None
    media_next: Tensor | None = None
    media_offsets: Tensor | None = None
    media_behind: Tensor | None = None


class Drafted(NamedTuple):
    """Output of a drafter. window int64 [B, N + 1]: bonus token, drafts in the order of the tree's nodes. n_total int64
    [B]: 1 + drafts. states in the order of the inputs. parents int64 [B, N + 1], if the drafter makes the tree: nodes
    after their parents, -1 for the root. ids int64 and probs float32 [B, N, C], if it samples: the distribution from
    which the children of node i were drawn one after the other without replacement; a node's probs sum to one, or are
    zero without children."""

    window: Tensor
    n_total: Tensor
    states: list[Tensor]
    parents: Tensor | None = None
    ids: Tensor | None = None
    probs: Tensor | None = None


class Drafter(nn.Module, ABC):
    """Base of all drafters; see the module's docstring.

    tokens      drafts per round, N
    n_unaccepted_rows  rows of the target's window after the drafts, never accepted, whose features it reads
    catch_up    width of its catch-up when decoding; 0 without own caches
    is_recurrent  true with recurrent states: it reads whole paths, one token more than other drafters when decoding
    pairs_next_token  true if its rows hold a feature and the next token
    taps        hidden states of the target that it reads: names as in `step.taps`
    target_top_k  number of the target's best tokens after every row that it reads, K
    shape       constant tree of its drafts, a chain included, or None if it makes the tree
    candidates  C, among which it samples each draft; 0 if its drafts are deterministic
    states      its buffers, which keep their content between rounds: (name, dtype, shape, is_batched)
    reads_whole_batch  true if it reads all batch slots of a state in every run, and needs the slots of the run's rows
    target_caches  caches of the target that it reads, after the round's commit
    reads_source  true if it attends to a source, whose states it reads alone; source_rows: E, if it looks up in one
    media       rows of pictures as it reads them, None if it reads none
    forward     (Accepted, states and target caches) -> Drafted
    """

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
    reads_source: bool = False
    source_rows: int = 0
    media: MediaRows | None = None

    @abstractmethod
    def states(self) -> list[State]:
        """Return the buffers, in the order in which `forward` takes and returns them, but for those of a source, which
        it leaves unchanged."""

    def target_caches(self) -> list[State]:
        """Return the caches of the target that it reads and leaves unchanged; they follow the states."""
        return []

    @abstractmethod
    def forward(self, accepted: Accepted, states: list[Tensor]) -> Drafted:
        """Propose the window of the next round."""
