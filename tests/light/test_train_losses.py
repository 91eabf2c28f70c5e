"""Losses of drafts, against numpy's closed forms, `trl`, finite differences and what has to be true of them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import Categorical, kl_divergence

from speccompile.recipe.training_losses import LOSSES
from speccompile.train.losses import divergence

DISTANCES = [kind for kind in LOSSES if kind != "ce"]
ROWS, SIZE = 24, 13


def drawn(*shape, seed=0, spread=2.0):
    generator = torch.Generator().manual_seed(seed)
    return spread * torch.randn(*shape, generator=generator, dtype=torch.float64)


@pytest.fixture(name="q_logits")
def _q_logits():
    return drawn(ROWS, SIZE)


@pytest.fixture(name="p_logits")
def _p_logits():
    return drawn(ROWS, SIZE, seed=1)


@pytest.fixture(name="tokens")
def _tokens():
    return torch.arange(ROWS) % SIZE


def shares(logits):
    weights = np.exp(logits.numpy())
    return weights / weights.sum(-1, keepdims=True)


def closed_form(kind, q, p, tokens, beta=0.5):
    """Apply the formulas as they are printed, of probabilities [N, V]."""

    def kl(a, b):
        return kl_divergence(Categorical(torch.tensor(a)), Categorical(torch.tensor(b))).numpy()

    alpha, middle = np.minimum(p, q).sum(-1), beta * p + (1 - beta) * q
    weight = np.exp(-3 * alpha)
    return {
        "ce": -np.log(q[np.arange(len(q)), tokens.numpy()]),
        "fkl": kl(p, q),
        "rkl": kl(q, p),
        "jsd": beta * kl(p, middle) + (1 - beta) * kl(q, middle),
        "tvd": 0.5 * np.abs(p - q).sum(-1),
        "nla": -np.log(alpha),
        "hybrid": weight * kl(p, q) + (1 - weight) * (1 - alpha),
    }[kind]


@pytest.mark.parametrize("beta", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("kind", LOSSES)
def test_closed_forms(kind, beta, q_logits, p_logits, tokens):
    found = divergence(kind, q_logits, p_logits, tokens, beta=beta)
    q, p = shares(q_logits), shares(p_logits)
    np.testing.assert_allclose(found.loss, closed_form(kind, q, p, tokens, beta), rtol=1e-9)
    np.testing.assert_allclose(found.accepted, np.minimum(p, q).sum(-1), rtol=1e-9)
    assert found.counted.all()


@pytest.mark.parametrize("beta", [0, 0.1, 0.5, 0.9, 1])
def test_jsd_is_that_of_trl(beta, q_logits, p_logits, tokens):
    from trl.experimental.gkd.gkd_trainer import GKDTrainer

    expected = GKDTrainer.generalized_jsd_loss(q_logits, p_logits, beta=beta, reduction="none").sum(-1)
    torch.testing.assert_close(divergence("jsd", q_logits, p_logits, tokens, beta=beta).loss, expected)
    for kind in {0: ["fkl"], 1: ["rkl"]}.get(beta, []):
        torch.testing.assert_close(divergence(kind, q_logits, p_logits, tokens).loss, expected)


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("hard", [0.0, 0.3])
@pytest.mark.parametrize("vocabulary", [None, torch.tensor([7, 0, 3, 11, 12])])
def test_gradients_are_finite_differences(kind, hard, vocabulary, p_logits, tokens):
    """Hold the weight of `hybrid` where it is, as no gradient goes through it."""
    q_logits = drawn(ROWS, SIZE if vocabulary is None else len(vocabulary), seed=2).requires_grad_()
    settings = {"beta": 0.3, "hard": hard, "vocabulary": vocabulary}
    if kind != "hybrid":
        assert torch.autograd.gradcheck(lambda q: divergence(kind, q, p_logits, tokens, **settings).loss, q_logits)
        return
    (found,) = torch.autograd.grad(divergence(kind, q_logits, p_logits, tokens, **settings).loss.sum(), q_logits)
    parts = {each: divergence(each, q_logits, p_logits, tokens, **settings).loss for each in ("fkl", "tvd")}
    weight = torch.exp(-3 * (1 - parts["tvd"].detach()))
    held = weight * parts["fkl"] + (1 - weight) * parts["tvd"]
    torch.testing.assert_close(found, torch.autograd.grad(held.sum(), q_logits)[0])


@pytest.mark.parametrize("kind", LOSSES)
def test_the_target_gets_no_gradient(kind, q_logits, p_logits, tokens):
    found = divergence(kind, q_logits.requires_grad_(), p_logits.requires_grad_(), tokens, hard=0.2)
    found.loss.sum().backward()
    assert p_logits.grad is None
    assert q_logits.grad.abs().sum() > 0
    assert not found.accepted.requires_grad


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.floats(0.01, 30), st.floats(0, 0.9), st.sampled_from(DISTANCES))
def test_bounds_and_nothing_at_equality(seed, spread, hard, kind):
    q, p = drawn(4, 9, seed=seed, spread=spread), drawn(4, 9, seed=seed + 1, spread=spread)
    tokens = torch.zeros(4, dtype=torch.int64)
    found, same = divergence(kind, q, p, tokens, hard=hard), divergence(kind, p, p, tokens)
    assert found.loss.isfinite().all()
    assert (found.loss > -1e-9).all()
    if kind in ("tvd", "jsd"):  # jsd with equal shares: at most log 2
        assert (found.loss < 1 + 1e-9).all()
    assert ((found.accepted >= 0) & (found.accepted <= 1 + 1e-9)).all()
    torch.testing.assert_close(same.loss, torch.zeros(4, dtype=torch.float64), rtol=0, atol=1e-9)
    torch.testing.assert_close(same.accepted, torch.ones(4, dtype=torch.float64), rtol=0, atol=1e-9)


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.floats(0.1, 10))
def test_losses_of_acceptance_bound_each_other(seed, spread):
    """Pinsker's inequality, and log x <= x - 1."""
    q, p = drawn(4, 9, seed=seed, spread=spread), drawn(4, 9, seed=seed + 1, spread=spread)
    worth = {kind: divergence(kind, q, p, torch.zeros(4, dtype=torch.int64)).loss for kind in DISTANCES}
    assert (worth["tvd"] <= (worth["fkl"] / 2).sqrt() + 1e-9).all()
    assert (worth["nla"] >= worth["tvd"] - 1e-9).all()


def test_all_of_the_target_on_its_best_token_is_cross_entropy_towards_it(q_logits, p_logits, tokens):
    found = divergence("fkl", q_logits, p_logits, tokens, hard=1)
    torch.testing.assert_close(found.loss, divergence("ce", q_logits, p_logits, p_logits.argmax(-1)).loss)
    torch.testing.assert_close(found.accepted, divergence("fkl", q_logits, p_logits, tokens).accepted)


@pytest.mark.parametrize("kind", DISTANCES)
def test_hardness_moves_a_share_of_the_target(kind, q_logits, p_logits, tokens):
    p = 0.6 * shares(p_logits) + 0.4 * np.eye(SIZE)[p_logits.argmax(-1)]
    found = divergence(kind, q_logits, p_logits, tokens, hard=0.4)
    np.testing.assert_allclose(found.loss, closed_form(kind, shares(q_logits), p, tokens), rtol=1e-9)


@pytest.mark.parametrize("kind", LOSSES)
def test_a_drafter_over_part_of_the_tokens(kind, p_logits, tokens):
    """KL is over the tokens that it has; alpha over all; nothing is learnt where the goal is none of them."""
    kept = torch.tensor([7, 0, 3, 11, 12])
    q_logits = drawn(ROWS, len(kept), seed=5)
    found = divergence(kind, q_logits, p_logits, tokens, vocabulary=kept)
    q, p = shares(q_logits), shares(p_logits)
    part, alpha = p[:, kept] / p[:, kept].sum(-1, keepdims=True), np.minimum(p[:, kept], q).sum(-1)
    weight = np.exp(-3 * alpha)
    places = torch.tensor([kept.tolist().index(each) if each in kept else 0 for each in tokens.tolist()])
    expected = {
        "tvd": 1 - alpha,
        "nla": -np.log(alpha),
        "hybrid": weight * closed_form("fkl", q, part, places) + (1 - weight) * (1 - alpha),
    }.get(kind, closed_form(kind, q, part, places) if kind not in ("tvd", "nla", "hybrid") else None)
    inside = np.isin(tokens if kind == "ce" else p.argmax(-1), kept)
    assert 0 < inside.sum() < ROWS
    np.testing.assert_array_equal(found.counted, inside)
    np.testing.assert_allclose(found.loss[inside], expected[inside], rtol=1e-9)
    assert (found.loss[~inside] == 0).all()
    np.testing.assert_allclose(found.accepted, alpha, rtol=1e-9)


@pytest.mark.parametrize("kind", DISTANCES)
def test_what_does_not_count_has_no_gradient_even_where_it_would_be_infinite(kind):
    q_logits = drawn(2, 2).requires_grad_()
    p_logits = torch.tensor([[9.0, 0.0, 0.0], [0.0, 0.0, 9.0]], dtype=torch.float64)
    hard = 0.99 if kind == "rkl" else 1
    found = divergence(kind, q_logits, p_logits, torch.zeros(2, dtype=torch.int64), hard=hard,
                       vocabulary=torch.tensor([0, 1]))  # fmt: skip
    found.loss.sum().backward()
    assert found.counted.tolist() == [True, False]
    assert q_logits.grad.isfinite().all()
    assert (q_logits.grad[1] == 0).all()
    assert (q_logits.grad[0] != 0).any()


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_it_stays_finite_where_probabilities_do_not_fit_a_float(kind, dtype):
    q_logits = torch.tensor([[300.0, 0.0, 0.0]], dtype=dtype, requires_grad=True)
    p_logits = torch.tensor([[0.0, 300.0, 0.0]], dtype=dtype)
    found = divergence(kind, q_logits, p_logits, torch.tensor([1]))
    found.loss.sum().backward()
    assert found.loss.dtype == found.accepted.dtype == torch.float32
    assert found.loss.isfinite().all()
    assert q_logits.grad.isfinite().all()
    expected = {"ce": 300, "fkl": 300, "rkl": 300, "jsd": np.log(2), "tvd": 1, "nla": 300 - np.log(3), "hybrid": 300}
    assert found.loss.item() == pytest.approx(expected[kind], rel=1e-2)


def test_a_token_that_the_target_excludes_adds_nothing(q_logits, p_logits, tokens):
    p_logits[:, 4] = -torch.inf
    found = divergence("fkl", q_logits.requires_grad_(), p_logits, tokens)
    found.loss.sum().backward()
    np.testing.assert_allclose(
        found.loss.detach(), (lambda p, q: np.where(p > 0, p * np.log(np.where(p > 0, p, 1) / q), 0).sum(-1))(
            shares(p_logits), shares(q_logits.detach())
        ), rtol=1e-9,
    )  # fmt: skip
    assert q_logits.grad.isfinite().all()
