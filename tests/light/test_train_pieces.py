"""Drafts evaluated in pieces have the losses and gradients of all of them at once."""

import pytest
import torch

from speccompile.train.chunked_loss import chunk_rows, chunked_loss
from speccompile.train.losses import divergence

SIZE, ROWS = 2**16 + 3, torch.tensor([5, 0, 7, 2, 6, 3, 1])


@pytest.fixture(name="given")
def _given():
    generator = torch.Generator().manual_seed(0)
    logits, target = (torch.randn(8, SIZE, generator=generator) for _ in range(2))
    return logits.requires_grad_(), target, torch.rand(len(ROWS), generator=generator)


def loss_of(target):
    return lambda own, piece: divergence("hybrid", own, target[ROWS[piece]], ROWS[piece])


def test_pieces_are_the_whole(given):
    logits, target, weights = given
    assert 1 < chunk_rows(logits) < len(ROWS)
    found = chunked_loss(logits, ROWS, weights, loss_of(target))
    (0.3 * found.total).backward()
    gradient, logits.grad = logits.grad, None
    expected = divergence("hybrid", logits[ROWS], target[ROWS], ROWS)
    (0.3 * (expected.loss * weights).sum()).backward()
    torch.testing.assert_close(gradient, logits.grad)
    assert (gradient[4] == 0).all()
    assert (gradient[ROWS].abs().sum(-1) > 0).all()
    torch.testing.assert_close(found.total, (expected.loss * weights).sum())
    torch.testing.assert_close((found.loss, found.accepted, found.counted), expected[:3], check_dtype=True)
    assert torch.equal(found.best, logits[ROWS].argmax(-1))
    assert not found.loss.requires_grad


def test_of_no_rows_nothing_comes_back_but_a_graph(given):
    logits, target, _ = given
    nothing = torch.zeros(0, dtype=torch.int64)
    found = chunked_loss(
        logits, nothing, torch.zeros(0), lambda own, piece: divergence("fkl", own, target[:0], nothing)
    )
    found.total.backward()
    assert (found.total, len(found.best)) == (0, 0)
    assert (logits.grad == 0).all()


def test_without_gradients_it_makes_none(given):
    logits, target, weights = given
    with torch.no_grad():
        found = chunked_loss(logits, ROWS, weights, loss_of(target))
    assert not found.total.requires_grad
    assert found.total == chunked_loss(logits, ROWS, weights, loss_of(target)).total


def test_low_precision_gets_gradients_of_its_own(given):
    logits, target, weights = given
    low = logits.detach().bfloat16().requires_grad_()
    chunked_loss(low, ROWS, weights, loss_of(target)).total.backward()
    chunked_loss(logits, ROWS, weights, loss_of(target)).total.backward()
    assert low.grad.dtype == torch.bfloat16
    assert torch.nn.functional.cosine_similarity(low.grad.float().flatten(), logits.grad.flatten(), 0) > 0.999
