"""The host's random numbers, against numpy's own and against their distribution."""

import numpy as np
import pytest

from speccompile.runtime.options import fresh_seed
from speccompile.runtime.rounds.random import Purpose, Uniforms


@pytest.mark.parametrize(("seed", "sequence"), [(0, 0), (7, 0), (7, 3), (2**64 - 1, 100)])
@pytest.mark.parametrize("purpose", Purpose)
def test_numbers_are_those_of_philox(seed, sequence, purpose):
    reference = np.random.Generator(np.random.Philox(key=np.array([seed, 3 * sequence + purpose], np.uint64))).random(
        50
    )
    stream = Uniforms(seed, sequence, purpose)
    drawn = np.concatenate([stream.draw(count) for count in (1, 9, 0, 40)])
    assert drawn.dtype == np.float32
    assert drawn.tolist() == (np.floor(reference * 2**24) / 2**24).tolist()


def test_numbers_are_even_and_below_one():
    drawn = Uniforms(1, 0, Purpose.NEW_TOKEN).draw(100_000)
    assert 0 <= drawn.min() < 1e-4
    assert 0.9999 < drawn.max() < 1
    counts = np.histogram(drawn, 20, (0, 1))[0]
    assert ((counts - 5000) ** 2 / 5000).sum() < 43.8  # chi-square with 19 degrees of freedom, p = 0.001


def test_streams_have_nothing_in_common():
    streams = [(seed, sequence, purpose) for seed in (0, 1) for sequence in (0, 1) for purpose in Purpose]
    drawn = np.stack([Uniforms(*stream).draw(10_000) for stream in streams])
    beside = np.corrcoef(drawn)[~np.eye(len(streams), dtype=bool)]
    assert np.abs(beside).max() < 0.05


def test_fresh_seeds_differ_and_survive_a_float():
    seeds = {fresh_seed() for _ in range(20)}
    assert len(seeds) == 20
    assert all(int(float(seed)) == seed for seed in seeds)
