"""Acceptance by depth on the prompts of a build's proof: the prior before a first round."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from speccompile.bundle.manifest import PROOF
from speccompile.errors import BundleError

KEY = "acceptance"
"""Key of the acceptance in an engine's entry of the proof."""


@dataclass(frozen=True)
class MeasuredAcceptance:
    """Counts over rounds of single sequences. drafted: rounds with drafts; tried, accepted: at each depth, the drafts
    whose predecessors were accepted, and those of them that were accepted as well. Tokens alone decide them, so that
    they hold on every machine."""

    rounds: int
    drafted: int
    tried: tuple[int, ...]
    accepted: tuple[int, ...]

    @property
    def mean_length(self) -> float:
        """Return new tokens a round, the bonus token included."""
        return 1 + sum(self.accepted) / max(1, self.rounds)

    @property
    def length_error(self) -> float:
        """Return the standard error of the mean length."""
        rounds = max(1, self.rounds)
        mean = sum(self.accepted) / rounds
        square = sum((2 * depth - 1) * count for depth, count in enumerate(self.accepted, 1)) / rounds
        return math.sqrt(max(0.0, square - mean**2) / rounds)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"tried": list(self.tried), "accepted": list(self.accepted)}


def measured(proof: Mapping[str, Any], engine: str, depth: int) -> MeasuredAcceptance | None:
    """Return an engine's acceptance in a proof, or None, as in a proof without prompts. Raise BundleError for a wrong
    depth."""
    rows: Sequence[Mapping[str, Any]] = proof.get("engines", ())
    found = next((row.get(KEY) for row in rows if engine in row.get("engines", ())), None)
    if found is None or not found.get("rounds"):
        return None
    counts: list[Sequence[int]] = [found.get(name, ()) for name in ("tried", "accepted")]
    if any(len(each) != depth for each in counts):
        raise BundleError(
            f"{PROOF}: {KEY} of the engine {engine!r} has counts of {len(counts[0])} and {len(counts[1])} depths, "
            f"expected {depth}",
            hint="build the bundle again with this speccompile",
        )
    return MeasuredAcceptance(found["rounds"], found["drafted"], tuple(counts[0]), tuple(counts[1]))
