"""Losses of cells, and the significance of their differences."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from mcflow.columns.schema import Column
from mcflow.evaluation.scores import CellLosses, cell_losses, compare, overall_standing, significant


def cells(ours: np.ndarray, theirs: np.ndarray, rows: np.ndarray | None = None) -> CellLosses:
    rows = np.arange(len(ours)) if rows is None else rows
    return CellLosses(rows, np.zeros(len(ours), dtype=int), {"mean": theirs, "mcflow": ours}, {})


def test_losses_of_times_are_in_days_and_those_of_categories_0_or_1() -> None:
    hours = Column("t", "timestamp[us]", "datetime", step=3_600_000_000)
    assert cell_losses(hours, np.array([0.0]), np.array([48.0])).tolist() == [4.0]
    level = Column("s", "string", "category", categories=("a", "b"))
    found = cell_losses(level, np.array([0.0, 1.0, 1.0]), np.array([1.0, 1.0, np.nan]))
    assert found[:2].tolist() == [1.0, 0.0]
    assert np.isnan(found[2])


def test_difference_of_one_cell_per_row_is_the_paired_t_test() -> None:
    rng = np.random.default_rng(0)
    ours, theirs = rng.random(50), rng.random(50) + 0.1
    found, known = compare(cells(ours, theirs), "mcflow", "mean"), stats.ttest_rel(ours, theirs)
    assert found.p_value == pytest.approx(known.pvalue)
    assert found.mean / found.error == pytest.approx(known.statistic)


def test_standard_error_is_clustered_by_row() -> None:
    rng = np.random.default_rng(0)
    ours, theirs = rng.random(50), rng.random(50)
    once = compare(cells(ours, theirs), "mcflow", "mean")
    thrice = compare(cells(np.tile(ours, 3), np.tile(theirs, 3), np.tile(np.arange(50), 3)), "mcflow", "mean")
    assert thrice.error == pytest.approx(once.error)
    assert thrice.p_value == pytest.approx(once.p_value)


@pytest.mark.parametrize("n_cells", [0, 1])
def test_too_few_cells_have_a_p_value_of_one(n_cells) -> None:
    assert compare(cells(np.ones(n_cells), np.zeros(n_cells)), "mcflow", "mean").p_value == 1


def test_methods_with_equal_losses_do_not_differ() -> None:
    assert compare(cells(np.ones(30), np.ones(30)), "mcflow", "mean").p_value == 1
    assert compare(cells(np.ones(30), np.zeros(30)), "mcflow", "mean").p_value == 0


def test_significance_is_corrected_for_several_comparisons() -> None:
    assert significant(np.array([0.001, 0.04, 0.9])).tolist() == [True, False, False]


def test_noise_is_rarely_significant() -> None:
    rng = np.random.default_rng(0)
    calls = 0
    for _ in range(200):
        columns = [compare(cells(*rng.random((2, 60))), "mcflow", "mean").p_value for _ in range(10)]
        calls += significant(np.array(columns)).any()
    assert calls < 0.1 * 200


def test_overall_standing_skips_columns_with_few_cells_and_scales_each_by_its_own_loss() -> None:
    rng = np.random.default_rng(0)
    columns = np.repeat([0, 1, 2], [200, 200, 3])
    theirs = rng.random(403)
    ours = theirs * 0.5
    ours[400:] = 1e9
    theirs[200:400] *= 1e6
    ours[200:400] *= 1e6
    found = CellLosses(np.arange(403), columns, {"mean": theirs, "mcflow": ours}, {})
    assert overall_standing(found, "mean") == "worse"
    assert overall_standing(CellLosses(found.rows, columns, {"mean": ours, "mcflow": theirs}, {}), "mean") == "better"
