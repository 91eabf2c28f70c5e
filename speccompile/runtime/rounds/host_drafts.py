"""Host drafts: the interface for indexes outside the graphs.

The target's graph reads `window`, `n_total` and, if it verifies trees, `parents`. A drafter's graph writes them, or the
host does: then a proposer gives the drafts of the next round before it begins. No draft can change a token.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from speccompile.bundle.manifest import Manifest
from speccompile.contract import Graph
from speccompile.errors import UsageError
from speccompile.index.retrieval import RetrievalProposer
from speccompile.progress import LOGGER
from speccompile.runtime.devices.engine import Array
from speccompile.tree import ROOT

INDEX = "index"
"""Folder of a bundle that holds its index, if it has one."""
WRITER = "drafter"
"""Folder of a bundle that holds the bundle of its drafter over texts, if it has one."""
GATE = "retrieval"
"""Kind of a gate that the host evaluates."""


@runtime_checkable
class Proposer(Protocol):
    """Source of the drafts of a round."""

    def propose(self, tokens: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
        """Return the drafts that follow a text, and the parent of each. Called for one batch slot at a time, before its
        round.

        tokens: the whole text so far, prompt and new tokens. The first result has the drafts' tokens, the second the
        parent of each: the number of an earlier draft, counted from 0, or -1 for a draft that follows the text itself.
        A chain of three has the parents -1, 0, 1. Both may be lists or integer arrays. Empty results are valid, and
        make the round as cheap as one without speculation.

        The best drafts come first: a bundle verifies up to the width of its window, and leaves out drafts deeper than
        its tree, with all that follow them.
        """
        ...


def needs_proposer(graphs: Sequence[Graph], tokens: int) -> bool:
    """Return whether a round has drafts, but no graph that makes them."""
    return tokens > 0 and not {"draft", "step"} & {graph.name for graph in graphs}


def gate_config(manifest: Manifest) -> Mapping[str, Any]:
    """Return the plan's gate by which host drafts replace a graph's drafts, or an empty mapping. The policy of the
    index decides which drafts pass."""
    cascade: Mapping[str, Any] = manifest.plan.get("drafter", {}).get("cascade") or {}
    gate: Mapping[str, Any] = cascade.get("gate") or {}
    return gate if gate.get("kind") == GATE else {}


def find_proposer(folder: Path, manifest: Manifest, given: Any) -> Proposer | None:
    """Return the proposer for the bundle in `folder`: the given one, or its own index; None if there is neither.

    Raise UsageError for a proposer that is given to a bundle which drafts in its graphs alone, or that cannot propose.
    """
    takes, gate = needs_proposer(manifest.graphs, manifest.tokens), gate_config(manifest)
    if given is not None:
        if not takes and not gate:
            kind = manifest.plan.get("drafter", {}).get("kind", "none")
            raise UsageError(
                f"proposer: received one for a bundle of drafter.kind {kind}, expected none: its graphs draft "
                "themselves",
                hint="build the recipe with drafter.kind or drafter.gate.kind retrieval, or leave proposer out",
            )
        if not isinstance(given, Proposer):
            raise UsageError(
                f"proposer: received {type(given).__name__}, expected an object with a method propose(tokens)",
                hint="see speccompile.runtime.Proposer",
            )
        return given
    if gate:
        return RetrievalProposer.open(folder / INDEX, gate["tokens"], manifest.depth)
    if takes and (folder / INDEX).is_dir():
        return RetrievalProposer.open(folder / INDEX, manifest.tokens, manifest.depth)
    if takes:
        LOGGER.warning("note: this bundle drafts by a proposer, and none is given: one token a round\n%s", _GIVE)
    return None


_GIVE = "hint: Bundle.open(folder, proposer=..), or build with drafter.index"


class HostDrafts:
    """Drafts of a proposer, limited to those that a bundle can verify."""

    def __init__(self, proposer: Proposer, manifest: Manifest) -> None:
        self._proposer, self._vocabulary, self._depth = proposer, manifest.vocabulary_size, manifest.depth
        self._is_chain = manifest.tree == "chain"

    def write(self, text: Sequence[int], window: Array, parents: Array | None, most: int) -> int:
        """Write the text's last token and at most `most` drafts into `window`, int64 [N + 1]; if the bundle verifies
        trees, write their parents into int64 [N + 1]. Return the number of drafts.

        Raise UsageError if the proposer's answer is no draft of this bundle.
        """
        tokens, behind = self._checked(*self._answer(text))
        kept = self._kept(behind, most)
        place = {ROOT: 0} | {draft: node for node, draft in enumerate(kept, 1)}
        window[0] = text[-1]
        for draft in kept:
            window[place[draft]] = tokens[draft]
            if parents is not None:
                parents[place[draft]] = place[behind[draft]]
        return len(kept)

    def _answer(self, text: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return the proposer's answer as lists of Python integers."""
        answer = self._proposer.propose(text)
        try:
            tokens, parents = answer
            plain = [[int(number) for number in numbers if int(number) == number] for numbers in (tokens, parents)]
            if [len(numbers) for numbers in plain] == [len(tokens), len(parents)]:
                return plain[0], plain[1]
        except (TypeError, ValueError):
            pass
        raise _refused(f"{str(answer)[:80]}", "two lists of whole numbers: tokens, and the parent of each")

    def _checked(self, tokens: list[int], parents: list[int]) -> tuple[list[int], list[int]]:
        if len(tokens) != len(parents):
            raise _refused(f"{len(tokens)} tokens and {len(parents)} parents", "one parent for each token")
        for draft, (token, parent) in enumerate(zip(tokens, parents, strict=True)):
            if not 0 <= token < self._vocabulary:
                raise _refused(f"token {token} as draft {draft}", f"tokens from 0 to {self._vocabulary - 1}")
            if not ROOT <= parent < draft:
                expected = f"a draft before it, or {ROOT} for the text"
                raise _refused(f"parent {parent} of draft {draft}", expected)
            if self._is_chain and parent != draft - 1:
                expected = f"parent {draft - 1}: this bundle judges a chain"
                hint = "propose a chain, or build with a tree, as in `tree: {depth: 8, nodes: 16}`"
                raise _refused(f"parent {parent} of draft {draft}", expected, hint)
        return tokens, parents

    def _kept(self, parents: list[int], most: int) -> list[int]:
        """Return the first drafts, up to `most`, that are not deeper than the tree."""
        depths, kept = {ROOT: 0}, list[int]()
        for draft, parent in enumerate(parents):
            depths[draft] = depths[parent] + 1
            if depths[draft] <= self._depth and len(kept) < most:
                kept.append(draft)
        return kept


def _refused(received: str, expected: str, hint: str | None = None) -> UsageError:
    return UsageError(f"proposer: received {received}, expected {expected}", hint=hint or "see Proposer.propose")
