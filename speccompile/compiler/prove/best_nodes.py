"""Check the best nodes of all trees (DDTree) by a search with a heap, one node after the other, over a drafter's
reference logits."""

from heapq import heappop, heappush
from typing import Any

import numpy as np

from speccompile.compiler.prove.drafts import (
    FORWARDS,
    HINT,
    TINY,
    Case,
    ReferenceLogits,
    report,
    softmax,
    tolerance_of,
    tree_cases,
)
from speccompile.compiler.prove.schedule_runs import Recording
from speccompile.errors import ProofError
from speccompile.runtime.devices.engine import Array

Path = tuple[int, ...]


def check_best_nodes(driven: Recording, each: ReferenceLogits, depth: int, max_length: int) -> dict[str, Any]:
    """Check that the drafts of every window are the nodes with the highest joint probabilities, up to `depth`.

    Raise ProofError. max_length: of a sequence; windows whose drafts reach beyond it are left out.
    """
    compared = spent = 0
    for case, paths in tree_cases(driven, depth, max_length):
        if spent >= FORWARDS:
            break
        tree = _Tree(each, case)
        wanted = tree.best(len(paths), depth)[-1]
        for path in paths:
            probability = tree.score(path)
            if len(path) > depth or not probability >= wanted - 2 * depth * tree.tolerance:
                raise ProofError(
                    f"{case.where}: drafts {list(path)}, of joint probability {np.exp(probability):.3g}; the "
                    f"{len(paths)} best up to depth {depth} have {np.exp(wanted):.3g} and more",
                    hint=HINT,
                )
        spent += len(tree.after)
        compared += len(paths)
    return report(driven, compared)


class _Tree:
    """All trees after a text, with the reference's log-probabilities after the nodes that were looked at."""

    def __init__(self, each: ReferenceLogits, case: Case) -> None:
        self.each, self.case, self.tolerance = each, case, 0.0
        self.after: dict[Path, Array] = {}

    def probabilities(self, path: Path) -> Array:
        """Return the log-probabilities float64 [V] after a node."""
        if path not in self.after:
            logits = self.each(self.case.fed, list(path))[-1]
            self.tolerance = max(self.tolerance, tolerance_of(self.case, logits))
            self.after[path] = np.log(np.maximum(softmax(logits), TINY))
        return self.after[path]

    def score(self, path: Path) -> float:
        """Return the joint log-probability of a node."""
        return sum(float(self.probabilities(path[:at])[token]) for at, token in enumerate(path))

    def best(self, count: int, depth: int) -> list[float]:
        """Return the scores of the `count` best nodes, the best first."""
        heap: list[tuple[float, Path, int]] = []
        found: list[float] = []
        self._offer(heap, (), 0)
        while len(found) < count:
            loss, parent, rank = heappop(heap)
            found.append(-loss)
            self._offer(heap, parent, rank + 1)
            if len(parent) + 1 < depth:
                self._offer(heap, (*parent, self._ranked(parent, rank)), 0)
        return found

    def _offer(self, heap: list[tuple[float, Path, int]], parent: Path, rank: int) -> None:
        """Put the child of this rank of a node into the heap, if there is one."""
        if rank < len(self.probabilities(parent)):
            heappush(heap, (-self.score((*parent, self._ranked(parent, rank))), parent, rank))

    def _ranked(self, parent: Path, rank: int) -> int:
        return int(np.argsort(-self.probabilities(parent), kind="stable")[rank])
