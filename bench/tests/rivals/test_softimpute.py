"""SoftImpute against plain iterations with a full singular value decomposition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from mcflow.columns.gaussian import MaskedRows
from mcflow.errors import ParameterError
from mcflow_bench.rivals import softimpute
from mcflow_bench.rivals.softimpute import SoftImputer, shrunk_map, soft_impute


def low_rank(n_rows: int, n_columns: int, rank: int, noise: float = 0.0, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    product = rng.normal(size=(n_rows, rank)) @ rng.normal(size=(rank, n_columns))
    return product + noise * rng.normal(size=(n_rows, n_columns))


def spoil(rows: np.ndarray, rate: float = 0.3) -> np.ndarray:
    return np.where(np.random.default_rng(1).random(rows.shape) < rate, np.nan, rows)


def plain(rows: np.ndarray, penalty: float, n_steps: int = 5000) -> np.ndarray:
    """Mazumder's iteration as written: fill the missing cells, decompose, shrink."""
    fitted = np.zeros_like(rows)
    for _ in range(n_steps):
        left, values, right = np.linalg.svd(np.where(np.isnan(rows), fitted, rows), full_matrices=False)
        fitted = (left * np.maximum(values - penalty, 0)) @ right
    return fitted


def objective(rows: np.ndarray, fitted: np.ndarray, penalty: float) -> float:
    """Return the sum that `soft_impute` minimises."""
    return float(np.nansum((rows - fitted) ** 2) / 2 + penalty * np.linalg.norm(fitted, "nuc"))


def solved(rows: np.ndarray, penalty: float) -> np.ndarray:
    start = np.zeros((rows.shape[1],) * 2)
    return soft_impute(MaskedRows(rows), penalty, start, max_steps=2000, tolerance=1e-11)


def fitted_by(rows: np.ndarray, found: np.ndarray) -> np.ndarray:
    return MaskedRows(rows).fill(np.eye(len(found)) - found) @ found


@pytest.mark.parametrize("shape", [(30, 6), (6, 30)])
def test_shrunk_map_takes_the_penalty_off_every_singular_value(shape: tuple[int, int]) -> None:
    full = low_rank(*shape, rank=5, noise=0.1)
    left, values, right = np.linalg.svd(full, full_matrices=False)
    expected = (left * np.maximum(values - 3.0, 0)) @ right
    np.testing.assert_allclose(full @ shrunk_map(full, 3.0), expected, atol=1e-10)


@pytest.mark.parametrize("shape", [(40, 6), (8, 12)])
@pytest.mark.parametrize("penalty", [0.5, 3.0])
def test_soft_impute_equals_the_plain_iteration(shape: tuple[int, int], penalty: float) -> None:
    rows = spoil(low_rank(*shape, rank=2, noise=0.3))
    np.testing.assert_allclose(fitted_by(rows, solved(rows, penalty)), plain(rows, penalty), atol=1e-5)


def test_objective_when_steps_are_added_never_rises() -> None:
    rows = spoil(low_rank(60, 8, rank=3, noise=0.5))
    found, sums = np.zeros((8, 8)), []
    for _ in range(25):
        filled = MaskedRows(rows).fill(np.eye(8) - found)
        found = soft_impute(MaskedRows(rows), 2.0, found, max_steps=1)
        sums.append(objective(rows, filled @ found, 2.0))
    assert (np.diff(sums) <= 1e-9).all()
    assert sums[-1] < 0.9 * objective(rows, np.zeros_like(rows), 2.0)
    assert sums[-1] == pytest.approx(objective(rows, plain(rows, 2.0, 500), 2.0), rel=1e-6)


def test_new_row_when_filled_is_the_fixed_point_of_its_own_iteration() -> None:
    train = spoil(low_rank(200, 6, rank=2, noise=0.3))
    imputer = SoftImputer(random_state=0, bounds=dict.fromkeys(range(6), (-1e9, 1e9))).fit(train)
    fresh = spoil(low_rank(20, 6, rank=2, noise=0.3, seed=5), 0.5)
    codes = imputer.codec_.encode(fresh)
    missing, units = np.isnan(codes), (codes - imputer.mean_) / imputer.scale_
    row = np.where(missing, 0.0, units)
    for _ in range(3000):
        row = np.where(missing, row @ imputer.map_, units)
    expected = imputer.codec_.decode(imputer.mean_ + imputer.scale_ * row)
    np.testing.assert_allclose(imputer.transform(fresh), expected, atol=1e-8)


def test_new_row_when_filled_is_the_ridge_regression_on_the_factors() -> None:
    rows, penalty = spoil(low_rank(80, 6, rank=2, noise=0.3)), 2.0
    found = solved(rows, penalty)
    _, values, right = np.linalg.svd(fitted_by(rows, found), full_matrices=False)
    factors = right.T * np.sqrt(values)
    filled = MaskedRows(rows).fill(np.eye(6) - found)
    for row, got in zip(rows, filled, strict=True):
        o = ~np.isnan(row)
        weights = np.linalg.solve(factors[o].T @ factors[o] + penalty * np.eye(6), factors[o].T @ row[o])
        np.testing.assert_allclose(got[~o], (factors @ weights)[~o], atol=1e-6)


def test_transform_recovers_a_matrix_of_low_rank() -> None:
    full = low_rank(400, 12, rank=2)
    rows = spoil(full, 0.2)
    filled = SoftImputer(random_state=0).fit_transform(rows)
    wrong = (filled - full)[np.isnan(rows)]
    assert np.sqrt((wrong**2).mean()) < 0.1 * full.std()


def test_chosen_penalty_is_the_best_on_hidden_cells_of_those_tried() -> None:
    full = low_rank(150, 10, rank=1, noise=2.0)
    imputer = SoftImputer(random_state=0, hidden_share=0.2).fit(spoil(full))
    best = int(np.argmin(imputer.errors_))
    largest = np.linalg.norm(np.nan_to_num((spoil(full) - np.nanmean(spoil(full), 0)) / np.nanstd(spoil(full), 0)), 2)
    assert 0 < best < len(imputer.errors_) - 1
    assert imputer.penalties_[0] == 1.0
    assert imputer.penalty_ == pytest.approx(imputer.penalties_[best] * largest)


def test_path_errors_equal_those_of_a_slow_version_on_the_same_hidden_cells() -> None:
    rows = spoil(low_rank(60, 5, rank=2, noise=0.4))
    hidden = np.random.default_rng(2).random(rows.shape) < 0.2
    scale = np.arange(1.0, 6.0)
    path = SoftImputer(n_penalties=4, smallest=0.05, tolerance=1e-9, max_steps=500)._fit_path(rows, hidden, scale)
    shown, asked = np.where(hidden, np.nan, rows), hidden & ~np.isnan(rows)
    largest = np.linalg.norm(np.nan_to_num(shown), 2)
    for share, error in zip(path.shares, path.errors, strict=True):
        wrong = ((plain(shown, share * largest) - rows) * scale)[asked]
        assert error == pytest.approx(np.sqrt((wrong**2).mean()), rel=1e-4)


def test_path_ends_early_when_smaller_penalties_bring_nothing() -> None:
    noise = np.random.default_rng(0).normal(size=(300, 5))
    imputer = SoftImputer(n_penalties=40, random_state=0).fit(spoil(noise))
    assert len(imputer.errors_) < 40
    late = imputer.errors_[-softimpute.PATIENCE :].min()
    assert late >= (1 - softimpute.GAIN) * imputer.errors_[: -softimpute.PATIENCE].min()


def test_unrelated_columns_are_filled_near_their_means() -> None:
    noise = np.random.default_rng(0).normal(size=(2000, 5))
    rows = spoil(noise)
    filled = SoftImputer(random_state=0).fit_transform(rows)
    assert np.sqrt(((filled - noise)[np.isnan(rows)] ** 2).mean()) < 1.02 * noise.std()


def test_places_of_a_categorical_column_are_hidden_together(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"number": rng.normal(size=90), "word": rng.choice(["a", "b", "c"], 90)})
    masks: list[np.ndarray] = []
    fit_path = SoftImputer._fit_path

    def spied(self: SoftImputer, units: np.ndarray, hidden: np.ndarray, scale: np.ndarray) -> Any:
        masks.append(hidden)
        return fit_path(self, units, hidden, scale)

    monkeypatch.setattr(SoftImputer, "_fit_path", spied)
    SoftImputer(random_state=0).fit(table)
    assert masks[0].shape == (90, 4)
    assert masks[0][:, 1].any()
    assert (masks[0][:, 1:] == masks[0][:, 1:2]).all()


def test_columns_on_any_scale_are_filled_alike() -> None:
    rows, scales = spoil(low_rank(200, 4, rank=2, noise=0.3)), np.array([1e-9, 1.0, 1e4, 1e9])
    one, many = (SoftImputer(random_state=0).fit_transform(given) for given in (rows, rows * scales))
    np.testing.assert_allclose(many / scales, one, atol=1e-7)


def test_fit_with_max_rows_learns_from_a_sample_that_the_seed_decides() -> None:
    rows = spoil(low_rank(300, 4, rank=2, noise=0.3))
    first, same, other = (SoftImputer(max_rows=60, random_state=s).fit(rows).map_ for s in (0, 0, 1))
    assert (first == same).all()
    assert (first != other).any()


@pytest.mark.parametrize("n_rows", [1, 2, 3])
def test_fit_of_very_few_rows_fills_within_what_was_seen(n_rows: int) -> None:
    seen = np.array([[1.1, 2.1, 3.1], [2.2, 5.2, 3.5], [1.5, 3.3, 3.2]])[:n_rows]
    filled = SoftImputer(random_state=0).fit(seen).transform(np.array([[1.5, np.nan, np.nan], [np.nan] * 3]))
    assert (filled[:, 1:] >= seen.min(axis=0)[1:]).all()
    assert (filled[:, 1:] <= seen.max(axis=0)[1:]).all()
    np.testing.assert_allclose(filled[1], seen.mean(axis=0))


@pytest.mark.parametrize("wrong", [{"n_penalties": 0}, {"smallest": 0}, {"hidden_share": 0.9}, {"max_rows": 0}])
def test_fit_with_a_parameter_out_of_range_says_so(wrong: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        SoftImputer(**wrong).fit(np.ones((3, 2)))
