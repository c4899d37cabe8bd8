"""The nearest rows against scikit-learn's."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.impute import KNNImputer
from sklearn.metrics.pairwise import nan_euclidean_distances

from mcflow.baselines import neighbours
from mcflow.baselines.neighbours import NeighboursImputer, _donor_terms, _squared_distances
from mcflow.errors import ParameterError


@pytest.fixture
def rows() -> np.ndarray:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(300, 6)) * [1, 10, 1e-9, 1e9, 1, 1]
    values[rng.random(values.shape) < 0.3] = np.nan
    return values


@pytest.mark.parametrize("weights", ["uniform", "distance"])
def test_scaled_rows_are_filled_as_by_scikit_learn(rows, weights):
    low, high = np.nanmin(rows, axis=0), np.nanmax(rows, axis=0)
    expected = KNNImputer(n_neighbors=5, weights=weights).fit_transform((rows - low) / (high - low))
    filled = NeighboursImputer(n_neighbors=5, weights=weights).fit_transform(rows)
    np.testing.assert_allclose((filled - low) / (high - low), expected, atol=1e-6)


def test_distances_over_shared_features_are_scikit_learns():
    rng = np.random.default_rng(1)
    x, y = rng.random((20, 5)), rng.random((30, 5))
    x[rng.random(x.shape) < 0.4], y[rng.random(y.shape) < 0.4] = np.nan, np.nan
    x[0] = np.nan
    expected = np.nan_to_num(nan_euclidean_distances(x, y, squared=True), nan=np.inf)
    np.testing.assert_allclose(_squared_distances(x, _donor_terms(y)), expected, atol=1e-12)


def test_batches_of_any_size_give_the_same(rows, monkeypatch):
    imputer = NeighboursImputer().fit(rows)
    whole = imputer.transform(rows)
    monkeypatch.setattr(neighbours, "MAX_DISTANCES", 1)
    np.testing.assert_allclose(imputer.transform(rows), whole, rtol=1e-12)


def test_ties_at_the_last_neighbour_do_not_depend_on_the_other_rows():
    rng = np.random.default_rng(2)
    grid = rng.integers(0, 3, size=(500, 5)) * 1.1
    grid[rng.random(grid.shape) < 0.2] = np.nan
    imputer = NeighboursImputer(n_neighbors=4, weights="distance", kinds=dict.fromkeys(range(5), "continuous"))
    filled = imputer.fit(grid).transform(grid)
    alone = np.vstack([imputer.transform(row[None]) for row in grid[:60]])
    np.testing.assert_allclose(alone, filled[:60], rtol=1e-9)
    np.testing.assert_array_equal(imputer.transform(grid[::-1])[::-1], filled)


def test_row_without_a_shared_feature_gets_the_mean():
    rows = np.array([[0.5, 1.5], [1.5, 4.5], [2.5, np.nan]])
    imputer = NeighboursImputer(n_neighbors=1).fit(rows)
    np.testing.assert_allclose(imputer.transform(np.array([[np.nan, np.nan]])), [[1.5, 3.0]])


def test_more_neighbours_than_donors_average_those_there_are():
    rows = np.array([[0.5, 1.5], [1.5, 4.5], [2.5, np.nan]])
    assert NeighboursImputer(n_neighbors=50).fit_transform(rows)[2, 1] == pytest.approx(3.0)


def test_same_row_with_distance_weights_decides_alone():
    rows = np.array([[0.5, 0.25, 1.5], [0.5, 0.25, np.nan], [9.5, 3.0, 7.5], [4.5, 2.0, 2.5]])
    filled = NeighboursImputer(n_neighbors=3, weights="distance").fit_transform(rows)
    assert filled[1, 2] == pytest.approx(1.5, abs=1e-4)


def test_categories_are_filled_by_the_majority_of_neighbours():
    frame = pd.DataFrame({"x": [0.0, 0.1, 0.2, 9.0, 9.1, 9.2, 0.15, 9.15], "c": [*"aabccb", None, None]})
    frame["c"] = frame["c"].astype("category")
    filled = NeighboursImputer(n_neighbors=3).fit_transform(frame)
    assert list(filled["c"][6:]) == ["a", "c"]


def test_cells_far_outside_the_fit_leave_no_nan(rows):
    far = np.full((1, 6), np.nan)
    far[0, 0] = 1e300
    assert np.isfinite(NeighboursImputer().fit(rows).transform(far)).all()


def test_weights_of_an_unknown_name_are_refused(rows):
    with pytest.raises(ParameterError, match="uniform"):
        NeighboursImputer(weights="unifrom").fit(rows)
