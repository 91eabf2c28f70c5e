"""What may be chosen, and what is: filters and draws at the very numbers where they change.

The probabilities are such that floats hold them, and their sums, as they are.
"""

import pytest
import torch

from speccompile.compiler.step import ops
from speccompile.compiler.step.sampling import Settings, apply_temperature_and_penalty, candidates, draw_candidate

PROBS = torch.tensor([0.125, 0.5, 0.25, 0.0625, 0.0625])
EVERYTHING = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}


def kept(**changes: float) -> list[int]:
    """Return the tokens that reach the threshold; their mass must be what is said."""
    values = EVERYTHING | changes
    threshold, mass = ops.nucleus(PROBS[None, None], *(torch.tensor([values[name]]) for name in EVERYTHING))
    found = (threshold[0, 0] <= PROBS).nonzero()[:, 0].tolist()
    assert mass[0, 0] == PROBS[found].sum()
    return found


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [0, 1, 2, 3, 4]),
        ({"top_k": 1}, [1]),
        ({"top_k": 2}, [1, 2]),
        ({"top_k": 3}, [0, 1, 2]),
        ({"top_k": 4}, [0, 1, 2, 3, 4]),  # the fifth is as probable as the fourth
        ({"top_k": 5}, [0, 1, 2, 3, 4]),
        ({"top_k": 99}, [0, 1, 2, 3, 4]),
        ({"top_p": 0.01}, [1]),
        ({"top_p": 0.5}, [1]),
        ({"top_p": 0.51}, [1, 2]),
        ({"top_p": 0.75}, [1, 2]),
        ({"top_p": 0.76}, [0, 1, 2]),
        ({"top_p": 0.875}, [0, 1, 2]),
        ({"top_p": 0.88}, [0, 1, 2, 3, 4]),
        ({"min_p": 0.125}, [0, 1, 2, 3, 4]),
        ({"min_p": 0.13}, [0, 1, 2]),
        ({"min_p": 0.25}, [0, 1, 2]),
        ({"min_p": 0.26}, [1, 2]),
        ({"min_p": 0.5}, [1, 2]),
        ({"min_p": 0.51}, [1]),
        ({"min_p": 1.0}, [1]),
        ({"top_k": 3, "top_p": 0.57}, [1]),  # of what top-k leaves, 0.875 in all: 0.49875
        ({"top_k": 3, "top_p": 0.58}, [1, 2]),
        ({"top_k": 2, "min_p": 0.125}, [1, 2]),
        ({"top_p": 0.9, "min_p": 0.3}, [1, 2]),
    ],
)
def test_what_may_be_chosen(changes, expected):
    assert kept(**changes) == expected


@pytest.mark.parametrize(
    ("uniform", "threshold", "expected"),
    [(0.0, 0.0, 0), (0.124, 0.0, 0), (0.125, 0.0, 1), (0.624, 0.0, 1), (0.625, 0.0, 2), (0.874, 0.0, 2),
     (0.875, 0.0, 3), (0.9375, 0.0, 4), (0.99999, 0.0, 4), (0.0, 0.25, 1), (0.66, 0.25, 1), (0.67, 0.25, 2),
     (0.99999, 0.25, 2), (0.99999, 0.5, 1)],
)  # fmt: skip
def test_the_first_token_up_to_which_there_is_more_than_the_share(uniform, threshold, expected):
    found = ops.draw(PROBS[None, None], torch.tensor([[threshold]]), torch.tensor([[uniform]]))
    assert found.tolist() == [[expected]]


def test_what_is_not_allowed_is_out_of_reach():
    logits, allowed = torch.tensor([[[3.0, 1.0, 2.0]]]), torch.tensor([[[False, True, True]]])
    hidden = ops.allow(logits, allowed)
    assert hidden.argmax(-1).tolist() == [[2]]
    assert torch.softmax(hidden, -1)[0, 0, 0] == 0
    assert torch.equal(hidden[0, 0, 1:], logits[0, 0, 1:])
    assert torch.equal(ops.allow(logits, torch.tensor([[[True]]])), logits)


def settings(**changes: object) -> Settings:
    values = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0, "history": [0]}
    values |= changes
    return Settings(**{name: torch.tensor([value]) for name, value in values.items()})


def test_penalty_and_temperature():
    logits = torch.tensor([[[2.0, -2.0, 4.0, -4.0]]])
    seen = torch.tensor([[[0, 1, 1]]])
    assert apply_temperature_and_penalty(logits, settings(repetition_penalty=2.0), seen).tolist() == [
        [[1.0, -4.0, 4.0, -4.0]]
    ]
    assert apply_temperature_and_penalty(logits, settings(temperature=0.5, repetition_penalty=2.0), seen).tolist() == [
        [[2.0, -8.0, 8.0, -8.0]]
    ]
    assert apply_temperature_and_penalty(logits, settings(temperature=0.0, repetition_penalty=0.5), seen).tolist() == [
        [[4.0, -1.0, 4.0, -4.0]]
    ]
    assert apply_temperature_and_penalty(logits, settings(), seen).tolist() == logits.tolist()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [8 / 15, 4 / 15, 2 / 15, 1 / 15]),
        ({"top_k": 1}, [1, 0, 0, 0]),
        ({"top_k": 2}, [2 / 3, 1 / 3, 0, 0]),
        ({"top_k": 4}, [8 / 15, 4 / 15, 2 / 15, 1 / 15]),
        ({"top_p": 0.5}, [1, 0, 0, 0]),
        ({"top_p": 0.54}, [2 / 3, 1 / 3, 0, 0]),
        ({"top_p": 0.0}, [1, 0, 0, 0]),
        ({"min_p": 0.5}, [2 / 3, 1 / 3, 0, 0]),
        ({"min_p": 0.51}, [1, 0, 0, 0]),
    ],
)
def test_what_a_drafter_draws_from(changes, expected):
    """Return the best four of five tokens, best first."""
    heated = torch.tensor([[[0.0625, 0.25, 1.0, 0.125, 0.5]]]).log2() * torch.log(torch.tensor(2.0))
    found = candidates(heated, 4, settings(**changes))
    assert found.ids.tolist() == [[[2, 4, 1, 3]]]
    assert torch.allclose(found.probs, torch.tensor([[expected]], dtype=torch.float32), atol=1e-6)


@pytest.mark.parametrize(("uniform", "expected"), [(0.0, 1), (0.49, 1), (0.5, 3), (0.99999, 3)])
def test_a_candidate_without_weight_is_not_drawn(uniform, expected):
    weights = torch.tensor([0.0, 0.25, 0.0, 0.25, 0.0])
    assert draw_candidate(weights, torch.tensor(uniform)) == expected
