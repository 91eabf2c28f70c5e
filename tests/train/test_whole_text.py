"""A pass over whole texts against the neutral op in eager torch, and its gradients against finite differences."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from speccompile.compiler.step import ops
from speccompile.compiler.step.attention import AttentionCall, window_reference
from speccompile.compiler.step.training_pass import TrainingPass

BATCH, HEADS, GROUPS, LENGTH, WIDTH = 2, 4, 2, 7, 6
FORMS = [
    {"window": window, "softcap": softcap, "sinks": sinks, "runs": runs}
    for window in (0, 3, -3) for softcap in (0.0, 2.0) for sinks in (False, True) for runs in (0, 1, 3)
]  # fmt: skip


def drawn(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


class Ran:
    """`runs` runs of a layer over the same places, each one position further; each query sees its own row in every run
    but the first, whose rows it sees by a random mask. steps: query, keys and values of every run."""

    def __init__(self, window: int, runs: int, dtype: torch.dtype = torch.float32) -> None:
        self.current, self.window, self.runs = TrainingPass([window]), window, runs
        self.rows = torch.arange(LENGTH).expand(BATCH, -1) + torch.tensor([[0], [2]])
        random = torch.rand(BATCH, LENGTH, LENGTH, generator=torch.Generator().manual_seed(5)) < 0.7
        self.visible = random & (torch.arange(LENGTH) <= torch.arange(LENGTH)[:, None])
        self.visible |= torch.eye(LENGTH, dtype=torch.bool)
        self.steps = [
            (drawn(BATCH, HEADS, LENGTH, WIDTH, seed=10 + step, dtype=dtype),
             drawn(BATCH, GROUPS, LENGTH, WIDTH, seed=20 + step, dtype=dtype),
             drawn(BATCH, GROUPS, LENGTH, WIDTH, seed=30 + step, dtype=dtype))
            for step in range(runs + 1)
        ]  # fmt: skip

    def last(self, asked: AttentionCall) -> Tensor:
        """Return what the last run gives, all of them made one after the other."""
        for step, (query, keys, values) in enumerate(self.steps):
            self.current.set_positions(self.rows + step, self.rows, self.visible, n_own=step)
            self.current.update(keys, values, 0)
            found = self.current.attend(query, asked)
        return found

    def by_the_op(self, asked: AttentionCall) -> Tensor:
        """Return the same by `ops.attend`, every row a column of its own and nothing committed."""
        own = torch.eye(LENGTH, dtype=torch.bool).expand(BATCH, -1, -1)
        visible = torch.cat([self.visible, *[own] * self.runs], 2)
        positions = self.rows + self.runs
        places = torch.cat([self.rows + step for step in range(self.runs + 1)], 1)
        if self.window:
            reached = window_reference(positions, self.window)[:, :, None] - places[:, None]
            visible = visible & (reached < abs(self.window))
        query = self.steps[-1][0]
        keys, values = (torch.cat([step[part] for step in self.steps], 2) for part in (1, 2))
        none = torch.zeros(BATCH, GROUPS, 0, WIDTH, dtype=query.dtype)
        bias = torch.where(visible, 0.0, ops.HIDDEN)[:, None].to(query.dtype)
        return ops.attend(
            query, keys, values, none, none, torch.zeros(BATCH, dtype=torch.int64), positions, bias, asked.scale,
            asked.softcap, 0, asked.sinks,
        )  # fmt: skip


def asked_for(softcap: float, sinks: bool, dtype: torch.dtype = torch.float32) -> AttentionCall:
    given = drawn(HEADS, seed=3, dtype=dtype) if sinks else None
    return AttentionCall(0, 0, scale=0.4, softcap=softcap, sinks=given)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_attends_as_the_neutral_op(form):
    ran, asked = Ran(form["window"], form["runs"]), asked_for(form["softcap"], form["sinks"])
    ran.visible[0, 3] = False  # sees nothing of the text, as padding may
    torch.testing.assert_close(ran.last(asked), ran.by_the_op(asked), atol=2e-6, rtol=1e-5)


def test_latent_rows_attend_as_the_neutral_op():
    """Attend with keys that are the row of keys with the row of values behind it."""
    ran = Ran(0, 0)
    query = drawn(BATCH, HEADS, LENGTH, 2 * WIDTH, seed=40)
    (_, keys, values), asked = ran.steps[0], replace(asked_for(0.0, sinks=True), is_latent=True)
    ran.current.set_positions(ran.rows, ran.rows, ran.visible)
    ran.current.update(keys, values, 0)
    none, length = torch.zeros(BATCH, GROUPS, 0, WIDTH), torch.zeros(BATCH, dtype=torch.int64)
    bias = torch.where(ran.visible, 0.0, ops.HIDDEN)[:, None]
    expected = ops.attend(
        query, keys, values, none, none, length, ran.rows, bias, asked.scale, 0.0, 0, asked.sinks, is_latent=True
    )
    torch.testing.assert_close(ran.current.attend(query, asked), expected, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("form", [each for each in FORMS if each["window"] >= 0 and each["runs"] < 2], ids=str)
def test_gradients_are_those_of_finite_differences(form):
    ran = Ran(form["window"], form["runs"], torch.float64)
    asked = asked_for(form["softcap"], form["sinks"], torch.float64)
    given = [tensor.requires_grad_() for step in ran.steps for tensor in step]
    given += [] if asked.sinks is None else [asked.sinks.requires_grad_()]

    def last(*tensors: Tensor) -> Tensor:
        again = Ran(form["window"], form["runs"], torch.float64)
        again.steps = [tuple(tensors[place : place + 3]) for place in range(0, 3 * len(ran.steps), 3)]
        sinks = None if asked.sinks is None else tensors[-1]
        return again.last(replace(asked, sinks=sinks))[:1, :, 2:4]

    assert torch.autograd.gradcheck(last, given, fast_mode=True)
