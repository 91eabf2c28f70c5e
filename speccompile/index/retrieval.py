"""Retrieval drafting: the drafts are continuations of the longest suffix of the text that occurs in the corpus."""

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
"""File of the `RetrievalPolicy`, next to the files of an index in a bundle."""


@dataclass(frozen=True)
class RetrievalPolicy:
    """Policy of a retrieval. fewest, most: minimum and maximum length of the matched suffix in tokens. occurrences:
    maximum number of occurrences that vote. branching: maximum children of a draft; 1 for a chain, 0 for no limit."""

    fewest: int
    most: int
    occurrences: int
    branching: int


class RetrievalProposer:
    """Proposer (see `speccompile.runtime.rounds.host_drafts`) that drafts from an index."""

    def __init__(self, index: Index, policy: RetrievalPolicy, drafts: int, depth: int) -> None:
        """drafts: maximum number of drafts; depth: maximum depth of their tree."""
        self.index, self.policy, self.drafts, self.depth = index, policy, drafts, depth

    @classmethod
    def open(cls, folder: Path, drafts: int, depth: int) -> "RetrievalProposer":
        """Open the index in a bundle's folder with its policy. Raise BundleError if either is invalid."""
        return cls(Index.open(folder), read_policy(folder), drafts, depth)

    def propose(self, tokens: Sequence[int]) -> Drafts:
        """Return drafts after the text. A match without continuation, as at the end of a document, is shortened."""
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
    """Read the policy of an index. Raise BundleError for an invalid file."""
    data: Any = read_json(folder / POLICY)
    try:
        return RetrievalPolicy(**data)
    except TypeError as error:
        raise BundleError(
            f"{folder / POLICY}: received no policy of an index: {error}", hint="build the bundle again"
        ) from None
