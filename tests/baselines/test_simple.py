"""The mean, the median and the most frequent category."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from mcflow.baselines.simple import MeanImputer, MedianImputer


@pytest.mark.parametrize(("kind", "expected"), [(MeanImputer, 25.75), (MedianImputer, 2.5)])
def test_numbers_with_an_outlier_are_filled_by_mean_or_median(kind, expected):
    rows = np.array([[0.5], [2.0], [3.0], [97.5], [np.nan]])
    assert kind().fit_transform(rows)[4, 0] == expected


@pytest.mark.parametrize("kind", [MeanImputer, MedianImputer])
def test_categories_are_filled_by_the_most_frequent_and_the_first_of_equals(kind):
    frame = pd.DataFrame({"a": ["x", "y", "y", None], "b": ["q", "p", None, None]}, dtype="category")
    filled = kind().fit_transform(frame)
    assert filled["a"][3] == "y"
    assert list(filled["b"][2:]) == ["p", "p"]


@pytest.mark.parametrize("kind", [MeanImputer, MedianImputer])
def test_new_rows_are_filled_from_the_fit_alone(kind):
    imputer = kind().fit(np.array([[1.5, 0.0], [2.5, 1.0], [np.nan, 2.0]]))
    assert imputer.transform(np.array([[np.nan, 9.0], [50.0, 9.0]]))[0, 0] == 2.0


@pytest.mark.parametrize("kind", [MeanImputer, MedianImputer])
@pytest.mark.parametrize("scale", [1e-300, 1e-9, 1e9, 1.6e308])
def test_any_scale_is_averaged_without_overflow(kind, scale):
    rows = np.array([[0.5], [0.75], [1.0], [0.75], [np.nan]]) * scale
    assert kind().fit_transform(rows)[4, 0] == pytest.approx(0.75 * scale, rel=1e-15)


def test_fill_of_a_table_without_varying_columns_is_empty():
    imputer = MeanImputer().fit(np.array([[3.5], [3.5], [np.nan]]))
    assert imputer.fill_.shape == (0,)
    assert imputer.transform(np.array([[np.nan]]))[0, 0] == 3.5
