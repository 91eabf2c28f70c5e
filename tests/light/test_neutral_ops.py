"""What the neutral ops of a round say, against a few lines of numpy: attention, the commit, and states that move on."""

import numpy as np
import pytest
import torch

from speccompile.compiler.step import ops

RANDOM = np.random.default_rng(5)


def drawn(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def tensors(*arrays: object) -> list[torch.Tensor]:
    return [torch.as_tensor(np.asarray(each)) for each in arrays]


@pytest.mark.parametrize("axis", [1, 2])
def test_a_commit_writes_behind_what_is_there_and_nothing_else(axis):
    shape = [2, 3, 3]
    shape[axis] = 6
    buffer, rows = drawn(*shape), drawn(2, 3, 3)
    rows = rows[:, :2] if axis == 1 else rows[:, :, :2]
    length = [1, 4]
    expected = buffer.copy()
    for row, start in enumerate(length):
        place = (row, slice(start, start + 2)) if axis == 1 else (row, slice(None), slice(start, start + 2))
        expected[place] = rows[row]
    given, new, lengths = tensors(buffer, rows, length)
    assert np.array_equal(ops.commit(given, new, lengths, axis).numpy(), expected)
    assert np.array_equal(given.numpy(), buffer)


BATCH, HEADS, GROUPS, TOKENS, ROWS, CAPACITY, KEY, VALUE = 2, 4, 2, 3, 4, 7, 5, 3


@pytest.mark.parametrize("window", [0, 1, 3])
@pytest.mark.parametrize("softcap", [0.0, 2.0])
@pytest.mark.parametrize("with_sinks", [False, True])
def test_attention_sees_what_is_committed_within_its_window(window, softcap, with_sinks):
    query, keys, values = (
        drawn(BATCH, HEADS, TOKENS, KEY),
        drawn(BATCH, GROUPS, ROWS, KEY),
        drawn(BATCH, GROUPS, ROWS, VALUE),
    )
    key_cache, value_cache = drawn(BATCH, GROUPS, CAPACITY, KEY), drawn(BATCH, GROUPS, CAPACITY, VALUE)
    length, sinks = np.array([2, 5]), drawn(HEADS)
    positions = length[:, None] + np.array([0, 1, 1])
    hidden = np.array([[0, 1, 1, 1], [0, 0, 1, 1], [0, 1, 0, 1]], bool)
    bias = np.where(hidden, np.float32(ops.HIDDEN), np.float32(0)) + np.zeros((BATCH, 1, 1, 1), np.float32)
    given = tensors(query, keys, values, key_cache, value_cache, length, positions, bias)
    found = ops.attend(*given, 0.5, softcap, window, torch.as_tensor(sinks) if with_sinks else None).numpy()
    for b, head, token in np.ndindex(BATCH, HEADS, TOKENS):
        group = head // (HEADS // GROUPS)
        committed = [j for j in range(length[b]) if not window or positions[b, token] - j < window]
        in_step = [r for r in range(ROWS) if not hidden[token, r]]
        its_keys = np.concatenate([key_cache[b, group, committed], keys[b, group, in_step]])
        its_values = np.concatenate([value_cache[b, group, committed], values[b, group, in_step]])
        scores = its_keys @ query[b, head, token] * 0.5
        scores = softcap * np.tanh(scores / softcap) if softcap else scores
        weights = np.exp(scores)
        total = weights.sum() + (np.exp(sinks[head]) if with_sinks else 0)
        assert np.allclose(found[b, head, token], weights @ its_values / total, atol=1e-5)


@pytest.mark.parametrize("count", [0, 1, 2, 4])
@pytest.mark.parametrize("length", [0, 3])
def test_a_convolution_s_state_is_its_last_rows(count, length):
    state, rows, weight = drawn(1, 1, 2, 3), drawn(1, 1, 4, 3), drawn(3, 3)
    begun = state if length else np.zeros_like(state)
    behind = np.concatenate([begun, rows], 2)
    given = tensors(rows, state, [length], [count])
    found = ops.shift(*given).numpy()
    assert np.array_equal(found, behind[:, :, count : count + 2] if count else state)
    expected = sum(behind[:, :, place : place + 4] * weight[:, place] for place in range(3))
    assert np.allclose(ops.convolve(*tensors(rows, begun, weight)).numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("length", [0, 3])
def test_a_recurrence_goes_token_by_token(gated, wide, length):
    query, key, value = drawn(1, 1, 3, 4), drawn(1, 1, 3, 4), drawn(1, 2, 3, 2)
    decay, beta, state = -abs(drawn(1, 2, 3, 4 if wide else 1)), abs(drawn(1, 2, 3, 1)), drawn(1, 2, 4, 2)
    states, contexts = [state], np.zeros((1, 2, 3, 2), np.float32)
    own = state[0] if length else np.zeros_like(state[0])
    for token in range(3):
        new = []
        for head in range(2):
            moved = np.exp(decay[0, head, token])[:, None] * own[head]
            update = value[0, head, token]
            if gated:
                update = beta[0, head, token] * (update - key[0, 0, token] @ moved)
            new.append(moved + np.outer(key[0, 0, token], update))
            contexts[0, head, token] = query[0, 0, token] @ new[-1]
        own = np.stack(new)
        states.append(own[None])
    gate = torch.as_tensor(beta) if gated else None
    q, k, v, d, s, n = tensors(query, key, value, decay, state, [length])
    assert np.allclose(ops.recur(q, k, v, d, gate, s, n).numpy(), contexts, atol=1e-5)
    for count in range(4):
        found = ops.advance(k, v, d, gate, s, n, torch.tensor([count])).numpy()
        assert np.allclose(found, states[count], atol=1e-5)
