"""What an evaluation found, as a line of curves.jsonl has it; and which of them is the best."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from speccompile.train.evaluate.depths import DepthCounts
from speccompile.train.evaluate.differences import Difference
from speccompile.train.evaluate.rounds import SimulatedDecoding


@dataclass(frozen=True)
class Evaluated:
    """step, seconds: of the training, when it was evaluated. counts: by depth, on held-out texts; simulated: over the
    target's own text, in a chain; compiled: the same prompts and chain, run, None where nothing was; own: run in the
    shape that the recipe has, where that is another one; differences: of simulated and compiled. loss: of the held-out
    texts, None where it was not asked for."""

    step: int
    seconds: float
    counts: DepthCounts
    simulated: SimulatedDecoding
    compiled: SimulatedDecoding | None = None
    own: SimulatedDecoding | None = None
    differences: tuple[Difference, ...] = ()
    loss: float | None = None

    def to_json(self) -> dict[str, Any]:
        """A line of curves.jsonl. Lists have one number for each depth, from 1 on; null where nothing was counted.

        step, seconds          of the training
        loss                   of the held-out texts; null where it was not asked for
        full                   share of anchors at which all drafts up to a depth are the target's best tokens
        cond                   share of those with the drafts before right at which the draft is, too
        accepted_at_depth      mean probability with which the target takes a draft that is drawn
        places                 anchors of each depth
        shape                  of the drafts that were simulated: "chain of 4"
        simulated              new tokens a round over the target's own text, the bonus token included; null without a
                               round. `best` goes by it
        simulated_rounds       rounds that were walked
        compiled               the same, of the checkpoint compiled and run; null where it was not
        compiled_rounds
        differing              prompts whose rounds differ between the two: [{prompt, round, index, who, margin, noise,
                               near_tie}], see `Difference`
        own                    null, or {shape, compiled, rounds}: run in the recipe's own shape, as a tree
        """
        run, own = self.compiled, self.own
        return {
            "step": self.step,
            "seconds": round(self.seconds, 3),
            "loss": self.loss,
            "full": self.counts.full,
            "cond": self.counts.cond,
            "accepted_at_depth": self.counts.accepted_at_depth,
            "places": list(self.counts.places),
            "shape": self.simulated.shape,
            "simulated": self.simulated.mean_accepted,
            "simulated_rounds": self.simulated.rounds,
            "compiled": None if run is None else run.mean_accepted,
            "compiled_rounds": None if run is None else run.rounds,
            "differing": [each.to_json() for each in self.differences],
            "own": None if own is None else {"shape": own.shape, "compiled": own.mean_accepted, "rounds": own.rounds},
        }


def best(lines: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Of lines of curves.jsonl, that of the checkpoint which accepts most in simulated rounds, of several the latest;
    None where no line has any. Lines of other kinds may stand between them."""
    judged = [line for line in lines if line.get("simulated") is not None]
    return max(judged, key=lambda line: (line["simulated"], line["step"]), default=None)
