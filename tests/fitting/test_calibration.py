"""Calibration of predicted probabilities on validation cells."""

from __future__ import annotations

import numpy as np
import pytest

from mcflow.fitting.calibration import Calibration


def flat(n_cells: int, n_columns: int = 1, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.random(n_cells), rng.integers(n_columns, size=n_cells)


def test_tail_is_the_order_statistic_of_the_true_values() -> None:
    below = np.random.default_rng(0).permutation(np.arange(1, 100) / 100)
    found = Calibration.from_scores(below, 1 - below, np.zeros(99, dtype=int), 1)
    low, high = found.tails(0.05)
    assert low[0] == 0.05
    assert high[0] == pytest.approx(0.05)
    assert found.tails(0.005)[0][0] == 0, "too few cells to say: the end of the range"


@pytest.mark.parametrize("stretch", [0.5, 1.0, 2.0])
def test_coverage_of_new_cells_is_as_requested_however_wrong_the_model_is(stretch) -> None:
    rng = np.random.default_rng(1)
    missed = []
    for _ in range(400):
        truths = 1 / (1 + np.exp(-stretch * rng.logistic(size=61)))  # the model says: uniform
        found = Calibration.from_scores(truths[:60], 1 - truths[:60], np.zeros(60, dtype=int), 1)
        low, high = found.tails(0.1)
        missed.append((truths[60] < low[0]) | (1 - truths[60] < high[0]))
    assert np.mean(missed) <= 0.2 + 3 * np.sqrt(0.2 * 0.8 / 400)
    assert np.mean(missed) >= 0.2 * 60 / 61 - 0.02 - 3 * np.sqrt(0.2 * 0.8 / 400)


def test_column_with_few_cells_uses_the_cells_of_all_columns() -> None:
    below, columns = flat(1000, 2)
    columns[:] = 0
    columns[:5] = 1
    low, _ = Calibration.from_scores(below, 1 - below, columns, 3).tails(0.05)
    assert low[1] == low[2] == np.sort(below)[int(np.floor(1001 * 0.05)) - 1]
    assert low[0] == np.sort(below[5:])[int(np.floor(996 * 0.05)) - 1]


def test_calibration_without_cells_changes_nothing() -> None:
    found = Calibration.from_scores(np.empty(0), np.empty(0), np.empty(0, dtype=int), 2)
    np.testing.assert_array_equal(found.tails(0.05), np.zeros((2, 2)))
    np.testing.assert_array_equal(found.scale, [1, 1])


def test_scale_is_the_spread_of_the_normal_scores() -> None:
    from scipy.special import ndtr

    rng = np.random.default_rng(0)
    columns = np.repeat([0, 1], 20_000)
    below = ndtr(rng.normal(size=40_000) * np.where(columns == 0, 0.7, 1.3))
    np.testing.assert_allclose(Calibration.from_scores(below, 1 - below, columns, 2).scale, [0.7, 1.3], rtol=0.02)
    few = Calibration.from_scores(below[-3:], 1 - below[-3:], columns[-3:], 2)
    assert np.abs(few.scale - 1).max() < 0.15, "three cells say little"


def test_scale_of_point_masses_predicted_correctly_is_one() -> None:
    rng = np.random.default_rng(0)
    truth = rng.random(20_000) < 0.3
    below, above = np.where(truth, 1.0, 0.7), np.where(truth, 0.3, 1.0)
    assert Calibration.from_scores(below, above, np.zeros(20_000, dtype=int), 1).scale[0] == pytest.approx(1, abs=0.02)


def test_calibration_survives_a_file() -> None:
    below, columns = flat(50, 3)
    found = Calibration.from_scores(below, 1 - below, columns, 3)
    again = Calibration.from_tensors(found.tensors())
    assert again is not None
    np.testing.assert_array_equal(again.tails(0.1), found.tails(0.1))
    assert Calibration.from_tensors({}) is None


def test_column_errors_are_relative_to_the_reference_by_column() -> None:
    from mcflow.fitting.calibration import column_errors
    from mcflow.fitting.callbacks import History

    columns = np.array([0, 0, 1, 1, 2])
    losses, reference = np.array([1.0, 3.0, 1.0, 0.0, 0.0]), np.array([8.0, 8.0, 1.0, 1.0, 0.0])
    found = column_errors(columns, losses, reference, np.array([True, False, False]))
    assert found == [(0, 2, 0.5), (1, 2, 0.5)], "a root for squared losses, and none where the reference is perfect"
    assert History.from_dict(History(column_errors=found).to_dict()).column_errors == found
