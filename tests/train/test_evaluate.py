"""Test what is read of the held-out part, the lines that an evaluation writes, and the best of them."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from speccompile.errors import UsageError
from speccompile.train.evaluate import Answer, DepthCounts, Evaluated, SimulatedDecoding, batches, best, prompts_of


@pytest.mark.parametrize(
    ("lines", "step"),
    [
        ([{"step": 1, "simulated": 2.0}, {"step": 2, "simulated": 2.5}, {"step": 3, "simulated": 2.4}], 2),
        ([{"step": 1, "simulated": 2.5, "loss": 0.1}, {"step": 2, "simulated": 2.5, "loss": 9.0}], 2),
        ([{"step": 9, "loss": 0.0}, {"step": 4, "simulated": 1.0}, {"step": 5, "simulated": None}], 4),
        ([{"step": 9, "loss": 0.0}], None),
    ],
)
def test_the_best_checkpoint_accepts_most_and_is_the_latest_of_those(lines, step):
    assert (best(lines) or {}).get("step") == step
    assert (best(lines[::-1]) or {}).get("step") == step


def test_a_line_of_curves_has_what_is_documented():
    answers = (Answer((1,), (2, 3, 4)), Answer((1,), (2,)))
    counts = DepthCounts((4, 2), (4, 1), (2, 1), (1.5, 0.5))
    simulated = SimulatedDecoding("chain of 2", answers, ((2,), ()))
    line = Evaluated(
        7, 1.23456, counts, simulated, simulated, SimulatedDecoding("tree", answers, ((1, 1), ()))
    ).to_json()
    assert line == {
        "step": 7, "seconds": 1.235, "loss": None, "full": [0.5, 0.5], "cond": [0.5, 1.0],
        "accepted_at_depth": [0.375, 0.25], "places": [4, 2], "shape": "chain of 2", "simulated": 2.0,
        "simulated_rounds": 1, "compiled": 2.0, "compiled_rounds": 1, "differing": [],
        "own": {"shape": "tree", "compiled": 1.0, "rounds": 2},
    }  # fmt: skip
    rows = [row[8:].split("  ")[0] for row in (Evaluated.to_json.__doc__ or "").splitlines() if row[8:9].strip()]
    assert set(line) <= {name for row in rows for name in row.split(", ")}


@dataclass
class Sample:
    tokens: Tensor
    learnt: Tensor


@dataclass
class Samples:
    all: list[Sample]

    def __len__(self) -> int:
        return len(self.all)

    def sample(self, i: int) -> Sample:
        return self.all[i]


def sample(length: int, first: int, start: int = 0) -> Sample:
    """Return tokens start, start + 1, .., learnt from `first` on."""
    return Sample(torch.arange(start, start + length, dtype=torch.int32), torch.arange(length) >= first)


def test_batches_of_all_processes_are_those_of_one():
    samples = Samples([sample(n, 2, start=10 * n) for n in (7, 3, 9, 5, 4)])
    whole = list(batches(samples, 9, 2))
    assert [tokens.shape for tokens, _, _ in whole] == [(2, 4), (2, 7), (1, 9)]
    tokens, real, learnt = whole[0]
    assert tokens.tolist() == [[30, 31, 32, 0], [40, 41, 42, 43]]
    assert real.tolist() == [[True, True, True, False], [True] * 4]
    assert learnt.tolist() == [[False, False, True, False], [False, False, True, True]]
    parts = [list(batches(samples, 9, 2, part, 2)) for part in range(2)]
    assert [len(part) for part in parts] == [2, 1]
    together = [parts[0][0], parts[1][0], parts[0][1]]
    for one, other in zip(together, whole, strict=True):
        assert all(map(torch.equal, one, other))
    assert len(list(batches(samples, 2, 1))) == 2


def test_prompts_are_what_stands_before_an_answer():
    samples = Samples([sample(8, 3), sample(8, 0, start=20), sample(9, 7, start=40)])
    assert prompts_of(samples, 5, 4) == [[0, 1, 2], [20, 21, 22, 23], [43, 44, 45, 46]]
    with pytest.raises(UsageError, match="received 1 held-out texts, none of which has a prompt"):
        prompts_of(Samples([sample(1, 0)]), 5, 4)
