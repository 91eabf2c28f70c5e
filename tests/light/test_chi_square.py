"""The chi-square test against torch's incomplete gamma function, and against samples of the distribution itself."""

import numpy as np
import pytest
import torch

from speccompile.compiler.prove.chi_square import Cell, chi_square, survival


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 5, 10, 11, 63, 400, 1001])
@pytest.mark.parametrize("ratio", [0.01, 0.5, 0.9, 1.0, 1.1, 1.5, 3.0, 10.0])
def test_survival_is_the_incomplete_gamma_function(degrees, ratio):
    statistic = degrees * ratio
    half = torch.tensor([degrees / 2, statistic / 2], dtype=torch.float64)
    assert survival(statistic, degrees) == pytest.approx(float(torch.special.gammaincc(*half)), rel=1e-8, abs=1e-300)


def test_survival_at_the_ends():
    assert (survival(0.0, 5), survival(3.0, 0), survival(1e6, 7)) == (1.0, 1.0, 0.0)
    assert survival(1.0, 2000) == 1.0


def test_the_statistic_is_pearsons():
    found = chi_square(np.array([44.0, 56.0]), np.array([50.0, 50.0]))  # Wikipedia's example of 44 men in 100
    assert (found.statistic, found.degrees) == (1.44, 1)
    assert found.p_value == pytest.approx(0.2301, abs=1e-4)


def test_small_cells_are_pooled():
    observed, expected = np.array([1.0, 60.0, 2.0, 31.0, 6.0]), np.array([2.0, 50.0, 4.0, 40.0, 4.0])
    found = chi_square(observed, expected)
    assert found.statistic == pytest.approx(100 / 50 + 81 / 40 + 1 / 10)
    assert (found.degrees, found.worst.index) == (2, 3)


def test_a_pool_that_is_small_itself_takes_a_cell_in():
    found = chi_square(np.array([50.0, 41.0, 9.0]), np.array([50.0, 48.0, 2.0]))
    assert (found.statistic, found.degrees, found.p_value) == (0.0, 1, 1.0)


def test_a_pool_that_deviates_most_is_no_cell():
    found = chi_square(np.array([80.0, 10.0, 10.0]), np.array([95.0, 3.0, 2.0]))
    assert found.worst == Cell(None, 20.0, 5.0)
    assert found.p_value < 1e-6


def test_one_cell_says_nothing():
    for cells in ([100.0], [98.0, 2.0], [100.0, 0.0], [3.0, 2.0]):
        found = chi_square(np.array(cells), np.array(cells))
        assert (found.statistic, found.degrees, found.p_value) == (0.0, 0, 1.0)


def test_what_was_never_expected_counts_in_the_pool():
    expected = np.array([60.0, 34.0, 6.0, 0.0])
    assert chi_square(np.array([60.0, 34.0, 6.0, 0.0]), expected).p_value == 1.0
    assert chi_square(np.array([40.0, 20.0, 6.0, 34.0]), expected).p_value < 1e-6


def test_p_values_of_right_samples_are_uniform():
    """Count p-values below 0.1, 0.2 and so on: with seven tokens, two of which are rare."""
    probabilities = np.array([0.4, 0.3, 0.15, 0.1, 0.04, 0.006, 0.004])
    counts = np.random.default_rng(0).multinomial(1000, probabilities, 2000)
    p_values = np.array([chi_square(row.astype(float), 1000 * probabilities).p_value for row in counts])
    for bound in (0.05, 0.1, 0.5, 0.9):
        assert np.mean(p_values < bound) == pytest.approx(bound, abs=0.03)
