"""Drafts from an index: what followed the longest end of the text that occurs in the corpus."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from speccompile.bundle.hashes import read_json
from speccompile.bundle.manifest import canonical_json
from speccompile.errors import BundleError
from speccompile.index.search import Index
from speccompile.index.votes import Drafts, vote

POLICY = "policy.json"
"""Beside the files of an index in a bundle: how it is asked."""


@dataclass(frozen=True)
class RetrievalPolicy:
    """fewest, most: tokens of the text's end that are looked for. occurrences: how many of them vote. branching: the
    most drafts that follow one; 1 for a chain, 0 for any number."""

    fewest: int
    most: int
    occurrences: int
    branching: int


class RetrievalProposer:
    """A proposer (see `speccompile.runtime.rounds.host_drafts`) that asks an index."""

    def __init__(self, index: Index, policy: RetrievalPolicy, drafts: int, depth: int) -> None:
        """drafts: the most that are proposed; depth: the most of them after one another."""
        self.index, self.policy, self.drafts, self.depth = index, policy, drafts, depth

    @classmethod
    def open(cls, folder: Path, drafts: int, depth: int) -> "RetrievalProposer":
        """The index in a bundle's folder, asked as its policy says. Raises BundleError."""
        return cls(Index.open(folder), read_policy(folder), drafts, depth)

    def propose(self, tokens: Sequence[int]) -> Drafts:
        """Where the longest end has nothing behind it, as at the end of a document, the next shorter one is asked."""
        policy, most = self.policy, self.policy.most
        while (match := self.index.longest_suffix_match(tokens, policy.fewest, most)) is not None:
            rows = self.index.continuations(match, policy.occurrences, self.depth)
            if any(rows):
                return vote(rows, self.drafts, policy.branching)
            most = match.length - 1
        return [], []


def write_policy(folder: Path, policy: RetrievalPolicy) -> None:
    (folder / POLICY).write_bytes(canonical_json(asdict(policy)))


def read_policy(folder: Path) -> RetrievalPolicy:
    """Raises BundleError for a file that holds something else."""
    data: Any = read_json(folder / POLICY)
    try:
        return RetrievalPolicy(**data)
    except TypeError as error:
        raise BundleError(
            f"{folder / POLICY}: received no policy of an index: {error}", hint="build the bundle again"
        ) from None
