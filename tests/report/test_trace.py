"""The data of trace plots."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mcflow.baselines import make
from mcflow.errors import DataError, ParameterError
from mcflow.paper.chain import ChainTrace
from mcflow.report import plot_trace


def trace_of(**changes: Any) -> SimpleNamespace:
    rng = np.random.default_rng(0)
    given = {
        "log_density": rng.normal(size=(40, 3)),
        "accepted": np.tile([[True, False, False], [True, True, False]], (20, 1)),
        "values": rng.normal(size=(40, 2)),
        "cells": np.array([[7, 1], [8, 2]]),
        "moves": ("one", "all") * 20,
        "burn_in": 10,
    }
    return SimpleNamespace(**given | changes)


def test_trace_when_given_a_chain_then_lines_are_its_numbers(labelled) -> None:
    trace = trace_of()
    density, accepted, first, second = plot_trace(trace).axes
    assert [axes.get_title() for axes in (first, second)] == ["row 7, column 1", "row 8, column 2"]
    assert labelled(density, "mean")[0].get_ydata() == pytest.approx(trace.log_density.mean(axis=1))
    assert len(labelled(density, "row")) == 3
    assert labelled(accepted, "all moves")[0].get_ydata()[:2] == pytest.approx([100 / 3, 50])
    assert labelled(accepted, "one")[0].get_ydata() == pytest.approx(np.full(20, 100 / 3))
    assert labelled(first, "value")[0].get_ydata() == pytest.approx(trace.values[:, 0])
    assert labelled(first, "mean")[0].get_segments()[0][0, 1] == pytest.approx(trace.values[10:, 0].mean())
    assert accepted.get_title() == "accepted: 50 % after the burn-in"


def test_trace_when_it_is_a_chain_trace_then_it_is_drawn() -> None:
    given = vars(trace_of())
    figure = plot_trace(ChainTrace(rows=np.arange(3), **given))
    assert [axes.get_title() for axes in figure.axes[2:]] == ["row 7, column 1", "row 8, column 2"]


def test_trace_when_it_has_names_and_a_burn_in_then_they_are_used(labelled) -> None:
    trace = trace_of(names=["age", "weight"], burn_in=5)
    del trace.moves
    figure = plot_trace(trace)
    assert [axes.get_title() for axes in figure.axes[2:]] == ["age", "weight"]
    for axes in figure.axes:
        shade = labelled(axes, "burn-in")[0].get_extents().transformed(axes.transData.inverted())
        assert (shade.x0, shade.x1) == pytest.approx((0, 5))


def test_trace_when_it_is_long_then_steps_and_cells_are_thinned(labelled) -> None:
    n_steps = 5_000
    trace = trace_of(
        log_density=np.zeros((n_steps, 2)), accepted=np.ones((n_steps, 2)), values=np.zeros((n_steps, 50)), moves=()
    )
    figure = plot_trace(trace)
    assert len(figure.axes) == 12
    assert "10 of 50 cells" in figure.get_suptitle()
    assert len(labelled(figure.axes[2], "value")[0].get_xdata()) == 1_000


def test_trace_when_a_density_is_infinite_then_the_mean_is_of_the_others(labelled) -> None:
    density = np.full((40, 3), -1.0)
    density[0] = [-np.inf, -1, -3]
    axes = plot_trace(trace_of(log_density=density)).axes[0]
    assert labelled(axes, "mean")[0].get_ydata()[0] == -2


@pytest.mark.parametrize("given", [None, {"log_density": 1}, make("em"), 3])
def test_trace_when_there_is_no_chain_then_the_error_names_the_preset_that_has_one(given: Any) -> None:
    with pytest.raises(ParameterError, match=r"holds no trace of a chain.*preset='paper'"):
        plot_trace(given)


def test_trace_when_shapes_do_not_match_then_the_error_names_them() -> None:
    with pytest.raises(DataError, match=r"values \(39, 2\)"):
        plot_trace(trace_of(values=np.zeros((39, 2))))
    with pytest.raises(DataError, match="empty"):
        plot_trace(trace_of(log_density=np.zeros((0, 3)), accepted=np.zeros((0, 3)), values=np.zeros((0, 2))))
