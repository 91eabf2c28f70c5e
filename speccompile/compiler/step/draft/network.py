"""What drafts token by token: a network that reads the accepted path, then its own drafts, and keeps caches or not."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from speccompile.compiler.step.draft import Accepted, State
from speccompile.compiler.step.draft.vocabulary import Vocabulary


class DraftRound(ABC):
    """One round of a reader. Made, it has read what was accepted, the bonus token included.

    bonus int64 [B, 1]; logits float32 [B, 1, V] after it, over the reader's own vocabulary.
    """

    bonus: Tensor
    logits: Tensor

    @abstractmethod
    def forward_drafts(self, tokens: Tensor, depth: int, ancestors: Tensor, parents: Tensor) -> Tensor:
        """Read drafts int64 [B, T], `depth` tokens behind the bonus token; returns logits float32 [B, T, V],
        or [B, 1, V] where they are the same after all of them.

        ancestors bool [B, T, R]: which of the R drafts that were read, these included, each of them sees. parents int64
        [B, T]: which of the tokens of the read before, or the bonus token, each of them follows.
        """

    @abstractmethod
    def commit(self) -> list[Tensor]:
        """The caches with what was accepted. Padding lies behind it, where nobody reads."""

    def commit_drafts(self) -> list[Tensor]:
        """The caches with the drafts as well, of readers that keep them."""
        raise AssertionError("rows of drafts are never kept here")


class DraftNetwork(nn.Module, ABC):
    """A network that begins a reading every round.

    size           tokens among which it chooses
    vocabulary     which tokens of the target these are, None for all
    taps           what it reads of the target besides tokens
    keeps_drafts   whether rows of its drafts may stay in its caches: those of a network that reads tokens alone
    catches_up     whether it has caches of its own
    is_recurrent   whether it has states of its own, which must be given every token once: it reads whole paths
    pairs          whether its rows hold a feature and the token behind it
    """

    size: int
    vocabulary: Vocabulary | None
    taps: tuple[str, ...] = ()
    can_commit_drafts: bool = False
    has_cache: bool = True
    is_recurrent: bool = False
    pairs_next_token: bool = False

    def __init__(self) -> None:
        super().__init__()
        self.vocabulary = None

    @abstractmethod
    def states(self) -> list[State]:
        """Its caches."""

    def target_caches(self) -> list[State]:
        """Caches of the target that it reads, as they are after the round's commit."""
        return []

    def confidence(self, reading: DraftRound, logits: Tensor) -> Tensor:
        """How sure it is of what follows, float32 [B, T], from the logits [B, T, V] that it has just given: here the
        probability of the best token."""
        return torch.softmax(logits, -1).amax(-1)

    @abstractmethod
    def begin(self, accepted: Accepted, states: list[Tensor]) -> DraftRound:
        """Read what was accepted. states: its own caches, then the borrowed ones."""
