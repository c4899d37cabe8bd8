"""Losses, and what counts as more than noise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from mcflow.data.schema import Column
from mcflow.evaluation.judging import overall_standing
from mcflow.evaluation.scores import CellLosses, beyond_noise, compare, losses_of


def cells(ours: np.ndarray, theirs: np.ndarray, rows: np.ndarray | None = None) -> CellLosses:
    rows = np.arange(len(ours)) if rows is None else rows
    return CellLosses(rows, np.zeros(len(ours), dtype=int), {"mean": theirs, "mcflow": ours}, {})


def test_times_lose_in_days_and_levels_by_being_wrong() -> None:
    hours = Column("t", "timestamp[us]", "datetime", step=3_600_000_000)
    assert losses_of(hours, np.array([0.0]), np.array([48.0])).tolist() == [4.0]
    level = Column("s", "string", "category", levels=("a", "b"))
    found = losses_of(level, np.array([0.0, 1.0, 1.0]), np.array([1.0, 1.0, np.nan]))
    assert found[:2].tolist() == [1.0, 0.0]
    assert np.isnan(found[2])


def test_difference_of_single_cells_is_the_paired_test() -> None:
    rng = np.random.default_rng(0)
    ours, theirs = rng.random(50), rng.random(50) + 0.1
    found, known = compare(cells(ours, theirs), "mcflow", "mean"), stats.ttest_rel(ours, theirs)
    assert found.p_value == pytest.approx(known.pvalue)
    assert found.mean / found.error == pytest.approx(known.statistic)


def test_cells_of_one_row_count_as_one() -> None:
    rng = np.random.default_rng(0)
    ours, theirs = rng.random(50), rng.random(50)
    once = compare(cells(ours, theirs), "mcflow", "mean")
    thrice = compare(cells(np.tile(ours, 3), np.tile(theirs, 3), np.tile(np.arange(50), 3)), "mcflow", "mean")
    assert thrice.error == pytest.approx(once.error)
    assert thrice.p_value == pytest.approx(once.p_value)


@pytest.mark.parametrize("n_cells", [0, 1])
def test_nothing_is_said_of_too_few_cells(n_cells) -> None:
    assert compare(cells(np.ones(n_cells), np.zeros(n_cells)), "mcflow", "mean").p_value == 1


def test_methods_that_lose_the_same_do_not_differ() -> None:
    assert compare(cells(np.ones(30), np.ones(30)), "mcflow", "mean").p_value == 1
    assert compare(cells(np.ones(30), np.zeros(30)), "mcflow", "mean").p_value == 0


def test_noise_alone_is_hardly_ever_called_more() -> None:
    rng = np.random.default_rng(0)
    calls = 0
    for _ in range(200):
        columns = [compare(cells(*rng.random((2, 60))), "mcflow", "mean").p_value for _ in range(10)]
        calls += beyond_noise(np.array(columns)).any()
    assert calls < 0.1 * 200


def test_overall_standing_leaves_out_columns_with_few_cells_and_weighs_each_by_its_own_spread() -> None:
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
