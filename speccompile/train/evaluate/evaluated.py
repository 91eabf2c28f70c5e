"""Result of an evaluation as a line of curves.jsonl, and the selection of the best one."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from speccompile.train.evaluate.depths import DepthCounts
from speccompile.train.evaluate.differences import Difference
from speccompile.train.evaluate.rounds import SimulatedDecoding


@dataclass(frozen=True)
class Evaluated:
    """Result of an evaluation. step, seconds: of the training at this time. counts: by depth, on held-out samples.
    simulated: a chain over the target's own text. compiled: the same prompts and chain, compiled and run, or None.
    own: run in the recipe's own shape if it differs. differences: between simulated and compiled. loss: of the held-out
    samples, None where no draft counts."""

    step: int
    seconds: float
    counts: DepthCounts
    simulated: SimulatedDecoding
    compiled: SimulatedDecoding | None = None
    own: SimulatedDecoding | None = None
    differences: tuple[Difference, ...] = ()
    loss: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the figures of a line of curves.jsonl. Lists have one number per depth, from 1 on; null for no places.

        step, seconds          of the training
        loss                   mean loss of the held-out samples, by the objective that is trained; null where no draft
                               counts
        full                   share of anchors at which all drafts up to a depth are the target's best tokens
        cond                   the same share of the draft alone, among anchors with all earlier drafts right
        accepted_at_depth      mean probability that the target accepts a sampled draft
        places                 number of anchors per depth
        shape                  shape of the simulated drafts: "chain of 4"
        simulated              new tokens per round over the target's own text, bonus token included; null without a
                               round. `best` compares it
        simulated_rounds       number of simulated rounds
        compiled               the same of the compiled checkpoint, or null
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
    """Return the line of curves.jsonl with the highest `simulated`, of equals the latest; None if no line has it. Lines
    of other kinds are ignored."""
    scored = [line for line in lines if line.get("simulated") is not None]
    return max(scored, key=lambda line: (line["simulated"], line["step"]), default=None)
