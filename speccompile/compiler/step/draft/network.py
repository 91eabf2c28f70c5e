"""Autoregressive drafters: process the accepted path, then unroll draft tokens, with or without a KV cache."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from speccompile.compiler.step.attention import CachedPass
from speccompile.compiler.step.draft import Accepted, State
from speccompile.compiler.step.draft.vocabulary import Vocabulary
from speccompile.compiler.step.media_rows import MediaRows


class DraftRound(ABC):
    """One round of a draft network. Its constructor reads the accepted tokens, the bonus token included.

    bonus int64 [B, 1]; logits float32 [B, 1, V] after it, over the network's own vocabulary.
    """

    bonus: Tensor
    logits: Tensor

    @abstractmethod
    def forward_drafts(self, tokens: Tensor, depth: int, ancestors: Tensor, parents: Tensor) -> Tensor:
        """Read drafts int64 [B, T], `depth` tokens after the bonus token; return logits float32 [B, T, V], or [B, 1, V]
        if they are the same after all of them.

        ancestors bool [B, T, R]: which of the R drafts read so far, these included, each of them sees. parents int64
        [B, T]: which of the tokens of the previous read, or the bonus token, each of them follows.
        """

    @abstractmethod
    def commit(self) -> list[Tensor]:
        """Return the caches with the accepted tokens. Padding lies after them and is never read."""

    def commit_drafts(self) -> list[Tensor]:
        """Return the caches with the drafts as well, for networks that can commit drafts."""
        raise AssertionError("rows of drafts are never kept here")


class CachedDraftRound(DraftRound):
    """A round over caches of its own. current: the pass over them; caught_up: its rows of the accepted tokens."""

    current: CachedPass
    caught_up: list[Tensor]

    def commit(self) -> list[Tensor]:
        """See `DraftRound.commit`."""
        return self.current.commit(self.caught_up)


class DraftNetwork(nn.Module, ABC):
    """A network that begins a `DraftRound` every round.

    size           number of tokens among which it chooses
    vocabulary     which tokens of the target these are, None for all
    taps           hidden states of the target that it reads
    can_commit_drafts  rows of its drafts may stay in its caches: true for a network that reads tokens alone
    has_cache      it has its own caches, and so catches up
    is_recurrent   it has recurrent states, which must read every token once: it reads whole paths
    pairs_next_token  its rows hold a feature and the next token
    reads_source   it attends to the source of an encoder
    media          rows of pictures as it reads them: those in place of the next tokens, or their positions
    """

    size: int
    vocabulary: Vocabulary | None
    taps: tuple[str, ...] = ()
    can_commit_drafts: bool = False
    has_cache: bool = True
    is_recurrent: bool = False
    pairs_next_token: bool = False
    reads_source: bool = False
    media: MediaRows | None = None

    def __init__(self) -> None:
        super().__init__()
        self.vocabulary = None

    @abstractmethod
    def states(self) -> list[State]:
        """Return its caches."""

    def target_caches(self) -> list[State]:
        """Return caches of the target that it reads, after the round's commit."""
        return []

    def confidence(self, reading: DraftRound, logits: Tensor) -> Tensor:
        """Return its confidence in the next token, float32 [B, T], from the logits [B, T, V] that it has just returned:
        here the probability of the best token."""
        return torch.softmax(logits, -1).amax(-1)

    @abstractmethod
    def begin(self, accepted: Accepted, states: list[Tensor]) -> DraftRound:
        """Read the accepted tokens. states: its own caches, then the target's."""
