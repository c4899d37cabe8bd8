"""Energy measures against the formulas written out, and their use on categories and incomplete columns."""

from __future__ import annotations

import numpy as np
import pytest

from mcflow.errors import DataError, ParameterError
from mcflow.metrics import energy_by_column, energy_i_score

RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def tables() -> tuple[np.ndarray, np.ndarray]:
    """Two numbers and a category of three, and the same rows with a third of the cells redrawn."""
    truth = np.column_stack([RNG.normal(size=60), 3 + 9 * RNG.random(60), RNG.integers(3, size=60)])
    return truth, np.where(RNG.random(truth.shape) < 0.3, RNG.permutation(truth), truth)


def indicators(table: np.ndarray) -> np.ndarray:
    return np.column_stack([table[:, :2], *(table[:, 2] == code for code in range(3))]).astype(float)


def test_energy_by_column_when_added_up_then_is_the_distance_computed_pair_by_pair(tables) -> None:
    x, y = map(indicators, tables)
    centre, spread = x.mean(0), x.std(0, ddof=1)
    x, y = (x - centre) / spread, (y - centre) / spread

    def mean(a, b):
        return np.mean([np.linalg.norm(one - other) for one in a for other in b])

    value = len(x) / 2 * (2 * mean(x, y) - mean(x, x) - mean(y, y))
    parts = energy_by_column(*tables, categorical=[2])
    assert parts.shape == (3,)
    assert parts.sum() == pytest.approx(value, rel=1e-9)


def test_energy_by_column_when_one_column_is_wrong_then_it_has_the_largest_part() -> None:
    truth = RNG.normal(size=(150, 4)) + RNG.normal(size=(150, 1))
    filled = truth.copy()
    filled[:50, 1] = RNG.permutation(truth[:, 1])[:50]  # the right marginal distribution, but no relation
    parts = energy_by_column(truth, filled)
    assert parts.argmax() == 1
    assert parts[1] > 3 * np.abs(np.delete(parts, 1)).max()


def test_energy_when_tables_are_equal_then_is_zero(tables) -> None:
    assert np.abs(energy_by_column(tables[0], tables[0])).max() < 1e-10


def test_energy_i_score_when_written_out_then_is_the_same() -> None:
    values = np.column_stack([RNG.normal(size=40), RNG.integers(3, size=40).astype(float), RNG.normal(size=40)])
    values[:8, 0] = np.nan
    values[4:20, 1] = np.nan
    draws = np.stack([np.column_stack([RNG.normal(size=40), RNG.integers(3, size=40), np.full(40, np.nan)])] * 5)
    draws += np.where([True, False, False], RNG.normal(size=draws.shape), 0)
    scores = []
    for k, (first, last) in enumerate([(0, 8), (4, 20)]):
        rows = [row for row in range(40) if not first <= row < last]
        codes = np.eye(3)[values[rows, k].astype(int)] if k else values[rows, k, None]
        units = np.sqrt(codes.var(axis=0).sum()) if k else codes.std(ddof=1)
        cells = []
        for row, cell in zip(rows, codes, strict=True):
            drawn = np.eye(3)[draws[:, row, k].astype(int)] if k else draws[:, row, k, None]
            off = np.linalg.norm(drawn - cell, axis=1).mean()
            between = np.linalg.norm(drawn[:, None] - drawn[None], axis=2).mean()
            cells.append((-off + between / 2) / units)
        scores.append(np.mean(cells))
    weights = np.array([0.2 * 0.8, 0.4 * 0.6])
    found = energy_i_score(values, draws, categorical=[1])
    assert found.value == pytest.approx(np.average(scores, weights=weights), rel=1e-9)
    assert found.error > 0


def test_energy_i_score_when_categories_are_two_then_they_score_as_numbers() -> None:
    values = RNG.integers(2, size=(400, 1)).astype(float)
    values[:100] = np.nan
    draws = RNG.integers(2, size=(6, 400, 1)).astype(float)
    as_codes, as_numbers = energy_i_score(values, draws, [0]).value, energy_i_score(values, draws).value
    assert as_codes == pytest.approx(as_numbers, rel=2e-3)  # one divides by n, the other by n - 1


def test_energy_i_score_when_draws_have_the_right_spread_then_beats_narrow_and_wide_ones() -> None:
    values = RNG.normal(size=(2000, 1))
    values[:400] = np.nan
    noise = RNG.normal(size=(20, 2000, 1))
    scores = {spread: energy_i_score(values, spread * noise).value for spread in (0.1, 1.0, 3.0)}
    assert max(scores, key=scores.__getitem__) == 1.0


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ((np.zeros((3, 2)), np.zeros((2, 3, 1))), DataError, "n_draws"),
        ((np.zeros((3, 1)), np.zeros((2, 3, 1))), DataError, "missing cells"),
        (([[1.0], [2.0], [np.nan]], [[[0.0], [np.nan], [0.0]]]), DataError, "not finite"),
        (([[1.0], [np.nan]], [[[0.0], [0.0]]], [1]), ParameterError, "positions from 0 to 0"),
    ],
)
def test_energy_i_score_when_something_is_wrong_then_says_so(given, error, words) -> None:
    with pytest.raises(error, match=words):
        energy_i_score(*given)


def test_energy_by_column_when_nothing_varies_or_shapes_differ_then_says_so() -> None:
    with pytest.raises(DataError, match="No column of truth varies"):
        energy_by_column(np.ones((4, 2)), np.ones((4, 2)))
    with pytest.raises(DataError, match="both have to have the same"):
        energy_by_column(np.ones((4, 2)), np.ones((5, 2)))
