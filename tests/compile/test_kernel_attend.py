"""Attention on every path and with one thread and two: bit for bit what its order says, and for a token of any window,
a tree's included, what it is for the token alone."""

import numpy as np
import pytest
from hypothesis import strategies as st

from speccompile.compiler.lower import neutral
from tests.compile import kernel_reference as reference
from tests.compile.kernel_cases import drawn, graph, values
from tests.compile.kernel_reference import Array, Floats
from tests.compile.kernel_runs import KernelRuns, needs_library, same_bits

pytestmark = needs_library

NAMES = ("query", "key_rows", "value_rows", "key_cache", "value_cache", "length", "positions", "bias")
HIDDEN = np.float32(-1e30)
CAPACITY = 80


def runs(scale: float = 0.3, softcap: float = 0.0, window: int = 0, op: str = "Attend") -> KernelRuns:
    integers = {"length": np.int64, "positions": np.int64}
    inputs = dict.fromkeys([*NAMES, "sinks"] if "Sinks" in op else NAMES)
    return KernelRuns(graph(op, inputs, feeds=integers, scale=scale, softcap=softcap, window=window, ring=0))


def bias_of(draw: st.DrawFn, batch: int, tokens: int, rows: int) -> Floats:
    """Return any rows hidden, by any number that hides, and any numbers to be added to the others."""
    random = np.random.default_rng(draw(st.integers(0, 1 << 16)))
    hides = random.random((batch, 1, tokens, rows)) < draw(st.sampled_from([0.0, 0.5, 1.0]))
    added = draw(st.sampled_from([0.0, 2.0])) * random.standard_normal(hides.shape)
    return np.where(hides, random.choice([-1e30, -np.inf, -6e29], hides.shape), added).astype(np.float32)


@pytest.mark.parametrize("op", neutral.ATTENDS)
@drawn(40, 200)
def test_attention(op, data):
    draw, is_latent = data.draw, "Latent" in op
    batch, tokens, groups = draw(st.integers(1, 2)), draw(st.integers(1, 11)), draw(st.integers(1, 3))
    rows = draw(st.one_of(st.just(tokens), st.integers(1, 20)))
    shared, width = draw(st.integers(1, 3)), draw(st.one_of(st.integers(1, 40), st.sampled_from([64, 128])))
    value_width, capacity = draw(st.integers(1, 70)), draw(st.integers(0, 40))
    length = np.array([draw(st.integers(0, capacity)) for _ in range(batch)])
    # What lies behind the committed rows is never read: it may be anything.
    caches = [values(draw, batch, groups, capacity + 1, each) for each in (width, value_width)]
    for cache in caches:
        for b in range(batch):
            cache[b, :, length[b] :] = np.nan
    feeds = {
        "query": values(draw, batch, tokens, groups * shared * (width + value_width * is_latent)),
        "key_rows": values(draw, batch, groups, rows, width),
        "value_rows": values(draw, batch, groups, rows, value_width),
        "key_cache": caches[0],
        "value_cache": caches[1],
        "length": length,
        "positions": length[:, None] + np.array([[draw(st.integers(0, 20)) for _ in range(tokens)]] * batch),
        "bias": bias_of(draw, batch, tokens, rows),
    } | ({"sinks": values(draw, groups * shared)} if "Sinks" in op else {})
    settings = {
        "scale": draw(st.sampled_from([0.125, 1.0, -0.3])),
        "softcap": draw(st.sampled_from([0.0, 0.0, 30.0])),
        "window": draw(st.sampled_from([0, 0, 1, 7])),
    }
    (found,) = runs(**settings, op=op).run(feeds)
    expected = reference.attend(**feeds, **settings, is_latent=is_latent)
    same_bits(found, expected, "the kernels and the reference")


@pytest.mark.parametrize("width", [16, 64, 80, 128, 144])
def test_many_queries_of_many_rows(width):
    """Attend where keys are turned: 27 queries and 139 rows, so that groups of both are not whole."""
    random, tokens, groups, shared, length = np.random.default_rng(width), 9, 2, 3, 139
    feeds = {
        "query": random.standard_normal((1, tokens, groups * shared * width)),
        "key_rows": random.standard_normal((1, groups, tokens, width)),
        "value_rows": random.standard_normal((1, groups, tokens, 24)),
        "key_cache": random.standard_normal((1, groups, length + 1, width)),
        "value_cache": random.standard_normal((1, groups, length + 1, 24)),
        "bias": np.where(np.tri(tokens, dtype=bool), 0, HIDDEN)[None, None],
    }
    feeds = {name: array.astype(np.float32) for name, array in feeds.items()}
    feeds |= {"length": np.array([length]), "positions": length + np.arange(tokens)[None]}
    (found,) = runs(scale=0.125).run(feeds)
    expected = reference.attend(**feeds, scale=0.125, softcap=0.0, window=0)
    same_bits(found, expected, "the kernels and the reference")


@pytest.mark.parametrize("query", [-1e38, -2e30, -np.inf, np.inf, np.nan])
@pytest.mark.parametrize("rows", [1, 15, 16, 17])
def test_scores_below_those_that_are_hidden(rows, query):
    """Attend with scores below those that pad a tile, whose weight stays zero."""
    ramp = np.linspace(0.1, 0.2, rows, dtype=np.float32)
    feeds = {
        "query": np.full((1, 1, 4), query, np.float32),
        "key_rows": np.tile(ramp[:, None], (1, 1, 1, 4)),
        "value_rows": np.arange(1, 4 * rows + 1, dtype=np.float32).reshape(1, 1, rows, 4),
        "key_cache": np.ones((1, 1, 3, 4), np.float32),
        "value_cache": np.ones((1, 1, 3, 4), np.float32),
        "length": np.array([0]),
        "positions": np.array([[0]]),
        "bias": np.zeros((1, 1, 1, rows), np.float32),
    }
    (found,) = runs(scale=1.0).run(feeds)
    same_bits(found, reference.attend(**feeds, scale=1.0, softcap=0.0, window=0), "the kernels and the reference")
    if np.isfinite(query):
        np.testing.assert_array_equal(found, feeds["value_rows"][:, 0, :1])  # the largest score takes it all


def tree(random: np.random.Generator, width: int) -> tuple[Array, list[list[int]]]:
    """Return a random tree: what every token descends from, itself last; and the bias of that."""
    ancestors: list[list[int]] = []
    for token in range(width):
        parent = int(random.integers(-1, token)) if token and random.random() < 0.5 else token - 1
        ancestors.append([*(ancestors[parent] if parent >= 0 else []), token])
    bias = np.full((width, width), HIDDEN)
    for token, seen in enumerate(ancestors):
        bias[token, seen] = 0
    return bias, ancestors


@pytest.mark.parametrize(("window", "op"), [(0, "Attend"), (9, "Attend"), (9, "AttendLatentSinks")])
def test_a_token_of_a_tree_gives_what_it_gives_alone(window, op):
    """Compare with the token behind its ancestors when they are committed."""
    random, committed, groups, heads, depth, value_depth = np.random.default_rng(window), 13, 2, 4, 40, 24
    kernels = runs(window=window, op=op)
    for width in range(1, 65):
        bias, ancestors = tree(random, width)
        depths = np.array([len(seen) - 1 for seen in ancestors])
        if window:
            for token, seen in enumerate(ancestors):
                bias[token, [row for row in seen if depths[token] - depths[row] >= window]] = HIDDEN
        feeds = {
            "query": random.standard_normal((1, width, heads * (depth + value_depth * ("Latent" in op)))),
            "key_rows": random.standard_normal((1, groups, width, depth)),
            "value_rows": random.standard_normal((1, groups, width, value_depth)),
            "key_cache": random.standard_normal((1, groups, CAPACITY, depth)),
            "value_cache": random.standard_normal((1, groups, CAPACITY, value_depth)),
        }
        feeds |= {"sinks": random.standard_normal(heads)} if "Sinks" in op else {}
        feeds = {name: array.astype(np.float32) for name, array in feeds.items()}
        feeds |= {"length": np.array([committed]), "positions": committed + depths[None], "bias": bias[None, None]}
        (found,) = kernels.run(feeds)
        for token in random.permutation(width)[:6]:
            alone = committed_alone(feeds, int(token), ancestors[token][:-1])
            (own,) = kernels.run(alone)
            same_bits(found[:, [token]], own, f"token {token} of {width}, and alone")


def committed_alone(feeds: dict[str, Array], token: int, before: list[int]) -> dict[str, Array]:
    """Return a window of one token, whose ancestors are in the cache."""
    length = int(feeds["length"][0])
    alone = feeds | {name: feeds[name].copy() for name in ("key_cache", "value_cache")}
    for name in ("key", "value"):
        alone[f"{name}_cache"][:, :, length : length + len(before)] = feeds[f"{name}_rows"][:, :, before]
        alone[f"{name}_rows"] = feeds[f"{name}_rows"][:, :, [token]]
    return alone | {
        "query": feeds["query"][:, [token]],
        "length": feeds["length"] + len(before),
        "positions": feeds["positions"][:, [token]],
        "bias": np.zeros((1, 1, 1, 1), np.float32),
    }
