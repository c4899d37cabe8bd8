"""The plot of a sensitivity analysis shows its estimates and tipping points."""

from __future__ import annotations

import numpy as np
import pytest

from mcflow.errors import ParameterError
from mcflow.imputers.sensitivity import Sensitivity
from mcflow.pool import pool
from mcflow.report import plot_sensitivity


def series(values: dict[float, float]) -> Sensitivity:
    results = {delta: pool([value] * 2, [1.0, 1.0], names=["age"]) for delta, value in values.items()}
    return Sensitivity("bmi", tuple(values), results)


def lines(figure) -> dict[str, list]:
    found: dict[str, list] = {}
    for line in figure.axes[0].lines:
        found.setdefault(line.get_label(), []).append(line)
    return found


def test_plot_shows_estimates_band_and_both_tipping_points() -> None:
    result = series({-2.0: -1.0, 0.0: 3.0, 2.0: 1.0})
    figure = plot_sensitivity(result, "age")
    drawn = lines(figure)
    np.testing.assert_allclose(drawn["estimate"][0].get_xydata(), [[-2, -1], [0, 3], [2, 1]])
    point = result.tipping_point("age")
    assert [line.get_xdata()[0] for line in drawn["tipping point"]] == pytest.approx([point.below, point.above])
    band = figure.axes[0].collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == pytest.approx(-1 - 1.959964, abs=1e-5)
    assert band[:, 1].max() == pytest.approx(3 + 1.959964, abs=1e-5)
    assert "age is above 0" in figure.get_suptitle()


def test_plot_without_a_tipping_point_marks_none() -> None:
    figure = plot_sensitivity(series({-1.0: 5.0, 0.0: 5.0}), "age")
    assert "tipping point" not in lines(figure)


def test_plot_of_an_unknown_term_is_rejected() -> None:
    with pytest.raises(ParameterError, match="There is no term 'bmi'"):
        plot_sensitivity(series({0.0: 1.0}), "bmi")
