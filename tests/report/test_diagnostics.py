"""The data of diagnostic plots."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from mcflow import MCFlowImputer
from mcflow.baselines import make
from mcflow.columns.frames import read_frame
from mcflow.errors import DataError, MissingExtraError, ParameterError
from mcflow.evaluation.wording import percent_text
from mcflow.missingness.hiding import hide
from mcflow.report import plot_calibration, plot_distributions, plot_overimputation, plot_trace
from mcflow.report.canvas import ORANGE
from mcflow.report.overimputation import PredictiveQuantiles
from mcflow.report.tables import binomial_band

#: The least that a trace needs.
CHAIN = SimpleNamespace(log_density=np.zeros((9, 2)), accepted=np.ones((9, 2)), values=np.ones((9, 1)), burn_in=3)


class IntervalImputer:
    """Predict a uniform distribution around a centre: the interval of a level has the width times the level."""

    def __init__(self, centre: float = 0.5, width: float = 1.0) -> None:
        self.centre, self.width = centre, width

    def _fill(self, X: Any, value: float) -> np.ndarray:
        return np.where(np.isnan(X), value, X)

    def transform(self, X: Any) -> np.ndarray:
        return self._fill(X, self.centre)

    def interval(self, X: Any, level: float) -> tuple[np.ndarray, np.ndarray]:
        half = self.width * level / 2
        return self._fill(X, self.centre - half), self._fill(X, self.centre + half)


class DrawImputer(IntervalImputer):
    """The same with draws in place of intervals: an even grid around the centre."""

    interval = property()  # type: ignore[assignment]

    def draw(self, X: Any, m: int, random_state: Any = None) -> Any:
        self.m = m
        return (self._fill(X, self.centre + self.width * ((k + 1) / (m + 1) - 0.5)) for k in range(m))


def evenly(n: int) -> np.ndarray:
    """Return one column of evenly spaced cells in (0, 1), so that the interval of a level covers that share."""
    return ((np.arange(n) + 0.5) / n)[:, None]


# plot_distributions


def test_distributions_when_bins_are_common_then_shares_are_those_of_observed_and_filled_cells(labelled) -> None:
    frame = np.array([[0.5], [1.5], [1.5], [9.5], [np.nan], [np.nan]])
    completed = np.where(np.isnan(frame), [[0.0]] * 4 + [[0.6], [9.5]], frame)
    (axes,) = plot_distributions(frame, completed).axes
    seen, filled = (labelled(axes, name)[0].get_data() for name in ("observed", "filled"))
    assert np.array_equal(seen.edges, filled.edges)
    assert seen.values.sum() == filled.values.sum() == pytest.approx(100)
    assert seen.values[[0, -1]] == pytest.approx([25, 25])
    assert filled.values[[0, -1]] == pytest.approx([50, 50])
    assert axes.get_title() == "0\n4 observed, 2 filled"


def test_distributions_when_given_draws_then_each_has_a_line_and_the_bold_one_is_their_mean(labelled) -> None:
    frame = np.array([[0.25], [1.5], [3.75], [np.nan]])
    draws = [np.where(np.isnan(frame), value, frame) for value in (0.3, 3.7)]
    for given in (draws, iter(draws), np.stack(draws), tuple(draws)):
        (axes,) = plot_distributions(frame, given).axes
        lines = [line.get_data().values for line in labelled(axes, "draw")]
        assert len(lines) == 2
        assert lines[0][0] == lines[1][-1] == 100
        assert labelled(axes, "filled")[0].get_data().values == pytest.approx(np.mean(lines, axis=0))


def test_distributions_when_categories_are_filled_then_bars_are_shares_with_the_range_of_the_draws(labelled) -> None:
    frame = pd.DataFrame({"colour": ["red", "red", "red", "blue", None, None]})
    draws = [frame.fillna("red"), frame.fillna({"colour": "blue"})]
    (axes,) = plot_distributions(frame, draws).axes
    seen, filled = axes.containers
    assert [text.get_text() for text in axes.get_yticklabels()] == ["blue", "red"]
    assert [bar.get_width() for bar in seen] == [25, 75]
    assert [bar.get_width() for bar in filled] == [50, 50]
    ends = [segment[:, 0].tolist() for segment in labelled(axes, "draws")[0].get_segments()]
    assert ends == [[0, 100], [0, 100]]


def test_distributions_when_there_are_many_categories_then_rare_ones_are_combined() -> None:
    words = [f"word {k:02d}" for k in range(12) for _ in range(20 - k)]
    frame = pd.DataFrame({"word": [*words, None]})
    (axes,) = plot_distributions(frame, frame.fillna("word 11")).axes
    assert [text.get_text() for text in axes.get_yticklabels()] == [*(f"word {k:02d}" for k in range(7)), "5 others"]
    seen, filled = axes.containers
    assert sum(bar.get_width() for bar in seen) == pytest.approx(100)
    assert filled[-1].get_width() == 100


def test_distributions_when_a_filled_category_was_not_observed_then_it_has_a_bar() -> None:
    frame = pd.DataFrame({"word": ["a", "b", None]})
    (axes,) = plot_distributions(frame, frame.fillna("c")).axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ["a", "b", "c"]
    assert [bar.get_width() for bar in axes.containers[1]] == [0, 0, 100]


def test_distributions_when_dates_are_filled_then_the_axis_counts_days(labelled) -> None:
    days = pd.Series(pd.to_datetime(["2020-01-01", "2020-01-03", "2020-01-09", None]))
    frame = pd.DataFrame({"visit": days})
    (axes,) = plot_distributions(frame, frame.fillna(pd.Timestamp("2020-01-03"))).axes
    edges = labelled(axes, "observed")[0].get_data().edges
    first = (pd.Timestamp("2020-01-01") - pd.Timestamp("1970-01-01")).days
    assert edges[0] == pytest.approx(first - 1)  # half a step of two days before the first
    assert edges[-1] > first + 8
    assert "DateFormatter" in type(axes.xaxis.get_major_formatter()).__name__


def test_distributions_when_one_cell_is_far_off_then_the_axis_excludes_it_with_a_note(labelled) -> None:
    frame = np.append(np.linspace(0.1, 0.9, 999), [1e6, np.nan])[:, None]
    (axes,) = plot_distributions(frame, np.nan_to_num(frame, nan=0.5)).axes
    assert labelled(axes, "observed")[0].get_data().edges[-1] < 1
    assert "beyond the axis" in axes.get_title()


def test_distributions_when_more_columns_than_panels_then_the_title_names_those_left_out() -> None:
    frame = np.arange(30.0)[:, None] + np.arange(30) / 7
    for column in range(30):
        frame[: 1 + (column > 3), column] = np.nan
    figure = plot_distributions(frame, np.nan_to_num(frame, nan=15.5))
    assert len(figure.axes) == 24
    assert "The 24 of 30 columns" in figure.get_suptitle()
    assert "not drawn: 0, 1, 2, 3, 28 and 1 more" in figure.get_suptitle().replace("\n", " ")


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_distributions_when_kinds_of_frames_differ_then_plots_do_not(labelled, kind: str) -> None:
    frame = pa.table({"x": [0.5, 1.25, None, 3.0], "word": ["a", None, "b", "b"]})
    completed = pa.table({"x": [0.5, 1.25, 2.0, 3.0], "word": ["a", "a", "b", "b"]})
    made = {"pandas": lambda t: t.to_pandas(), "polars": pl.from_arrow, "pyarrow": lambda t: t}[kind]
    numbers, words = plot_distributions(made(frame), made(completed)).axes
    assert labelled(numbers, "filled")[0].get_data().values.sum() == pytest.approx(100)
    assert [bar.get_width() for bar in words.containers[1]] == [100, 0]


def test_distributions_when_empty_columns_were_dropped_then_columns_are_still_matched() -> None:
    frame = np.array([[np.nan, 0.5], [np.nan, 2.5], [np.nan, np.nan]])
    (axes,) = plot_distributions(frame, np.array([[0.5], [2.5], [1.0]])).axes
    assert axes.get_title().startswith("1\n")


def test_distributions_when_tables_do_not_belong_together_then_the_error_says_why() -> None:
    frame = np.array([[0.5], [1.5], [np.nan]])
    with pytest.raises(DataError, match="same rows"):
        plot_distributions(frame, np.zeros((2, 1)))
    with pytest.raises(DataError, match="differs from frame"):
        plot_distributions(frame, np.zeros((3, 1)))
    with pytest.raises(DataError, match="nothing to compare"):
        plot_distributions(frame[:2], frame[:2])
    with pytest.raises(DataError, match="no table"):
        plot_distributions(frame, [])
    named = pd.DataFrame({"age": [1.5, None], "weight": [2.5, 3.5]})
    with pytest.raises(ParameterError, match="Did you mean 'weight'"):
        plot_distributions(named, named.fillna(1), columns=["wieght"])
    with pytest.raises(ParameterError, match="list of column names"):
        plot_distributions(named, named.fillna(1), columns="age")
    with pytest.raises(DataError, match="lacks column 'age'"):
        plot_distributions(named, named[["weight"]])


# plot_overimputation


def test_overimputation_when_intervals_are_known_then_points_bars_and_coverage_are_theirs(labelled) -> None:
    frame = evenly(100)
    figure = plot_overimputation(IntervalImputer(), frame, level=0.5, n_cells=100, random_state=0)
    (axes,) = figure.axes
    covered, missed = (labelled(axes, name)[0].get_offsets() for name in ("covered", "missed"))
    inside = (frame[:, 0] >= 0.25) & (frame[:, 0] <= 0.75)
    assert axes.get_title() == "0\n50 % of 100 covered"
    assert np.asarray(covered) == pytest.approx(np.column_stack([frame[inside, 0], np.full(50, 0.5)]))
    assert np.asarray(missed)[:, 0] == pytest.approx(frame[~inside, 0])
    bars = np.concatenate([c.get_segments() for c in axes.collections if hasattr(c, "get_segments")])
    assert len(bars) == 100
    assert bars[:, :, 1] == pytest.approx(np.tile([0.25, 0.75], (100, 1)))
    diagonal = labelled(axes, "diagonal")[0]
    assert diagonal.get_xdata() == pytest.approx(diagonal.get_ydata())
    assert "Expected coverage of 50 % intervals with 100 cells: 40 % to 60 %" in figure.get_suptitle()


def test_overimputation_when_there_are_only_draws_then_their_quantiles_are_the_interval() -> None:
    drawer = DrawImputer()
    (axes,) = plot_overimputation(drawer, evenly(100), level=0.5, n_cells=100, random_state=0).axes
    assert axes.get_title() == "0\n50 % of 100 covered"
    assert drawer.m == 40
    plot_overimputation(drawer, evenly(20), level=0.99, random_state=0)
    assert drawer.m == 199  # the fewest whose ends are half a percent from both sides


def test_overimputation_when_coverage_is_outside_its_band_then_the_title_stands_out() -> None:
    (axes,) = plot_overimputation(IntervalImputer(width=0.5), evenly(100), n_cells=100, random_state=0).axes
    assert axes.get_title() == "0\n46 % of 100 covered"
    assert axes.title.get_color() == ORANGE


def test_overimputation_when_n_cells_is_small_then_a_sample_of_observed_cells_is_hidden() -> None:
    frame = np.column_stack([evenly(50), evenly(50)])
    frame[::2, 0] = np.nan
    asked: list[np.ndarray] = []

    class Spy(IntervalImputer):
        def transform(self, X: Any) -> np.ndarray:
            asked.append(X)
            return super().transform(X)

    figure = plot_overimputation(Spy(), frame, n_cells=10, random_state=3)
    assert [axes.get_title().splitlines()[1][-13:] for axes in figure.axes] == ["of 10 covered"] * 2
    first, second = asked
    assert np.isnan(first[:, 0]).all()
    assert set(first[:, 1]) <= set(frame[1::2, 1])
    assert np.isnan(second[:, 1]).all()
    rows = [int(np.flatnonzero(frame[:, 1] == cell)[0]) for cell in first[:, 1]]
    assert rows == sorted(set(rows))


def test_overimputation_when_cells_are_thinned_then_the_title_counts_all(labelled) -> None:
    (axes,) = plot_overimputation(IntervalImputer(), evenly(1_000), n_cells=1_000, random_state=0).axes
    assert axes.get_title() == "0\n90 % of 1,000 covered"
    assert sum(len(labelled(axes, name)[0].get_offsets()) for name in ("covered", "missed")) == 400


def test_overimputation_when_categories_have_probabilities_then_those_of_the_true_category_are_drawn(labelled) -> None:
    frame = pd.DataFrame({"word": ["a", "b"] * 10, "x": np.arange(20) / 8})

    class Guesser:
        def transform(self, X: Any) -> Any:
            return X.fillna("a")

        def predict_proba(self, X: Any) -> dict[str, Any]:
            return {"word": pd.DataFrame({"a": np.full(len(X), 0.8), "b": np.full(len(X), 0.2)})}

    (axes,) = plot_overimputation(Guesser(), frame, columns=["word"], random_state=0).axes
    right = [scatter.get_offsets()[:, 1].tolist() for scatter in labelled(axes, "covered")]
    wrong = [scatter.get_offsets()[:, 1].tolist() for scatter in labelled(axes, "missed")]
    assert right == [[0.8] * 10, []]
    assert wrong == [[], [0.2] * 10]
    assert axes.get_title() == "word\n50 % of 20 correct"
    assert [line.get_segments()[0][0, 1] for line in labelled(axes, "share")] == [0.5, 0.5]


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_overimputation_when_frames_are_mixed_then_every_kind_of_column_has_a_panel(labelled, kind: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=60)
    frame = pd.DataFrame(
        {
            "x": x,
            "count": rng.integers(0, 9, 60),
            "word": np.where(x > 0, "up", "down"),
            "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 99, 60), unit="D"),
        }
    )
    native = {"pandas": lambda f: f, "polars": pl.from_pandas, "pyarrow": pa.Table.from_pandas}[kind](frame)
    imputer = make("em", random_state=0).fit(native)
    figure = plot_overimputation(imputer, native, n_cells=20, random_state=0)
    assert [axes.get_title().splitlines()[0] for axes in figure.axes] == ["x", "count", "word", "day"]
    again = plot_overimputation(imputer, native, n_cells=20, random_state=0)
    assert [a.get_title() for a in again.axes] == [a.get_title() for a in figure.axes]
    truths = np.concatenate([labelled(figure.axes[3], n)[0].get_offsets() for n in ("covered", "missed")])[:, 0]
    days = (frame["day"] - pd.Timestamp("1970-01-01")).dt.days
    assert set(truths) <= set(days)


def test_overimputation_when_asked_of_mcflow_then_its_intervals_and_probabilities_are_drawn(labelled) -> None:
    x = np.random.default_rng(0).normal(size=80)
    frame = pd.DataFrame({"x": x, "y": x + 1, "word": np.where(x > 0, "up", "down")})
    imputer = MCFlowImputer(max_epochs=2, random_state=0).fit(frame)
    numbers, _, words = plot_overimputation(imputer, frame, n_cells=80, level=0.8, random_state=0).axes
    low, high = imputer.interval(frame.assign(x=np.nan), level=0.8)
    covered = np.mean((low["x"] <= frame["x"]) & (frame["x"] <= high["x"]))
    assert numbers.get_title() == f"x\n{percent_text(covered)} of 80 covered"
    chances = imputer.predict_proba(frame.assign(word=None))["word"]
    drawn = np.concatenate([s.get_offsets()[:, 1] for n in ("covered", "missed") for s in labelled(words, n)])
    assert sorted(drawn) == pytest.approx(sorted(np.where(x > 0, chances["up"], chances["down"])))


def test_overimputation_when_it_is_impossible_then_the_error_says_why() -> None:
    frame = evenly(10)
    silent = SimpleNamespace(transform=lambda X: np.nan_to_num(X, nan=0.5))
    with pytest.raises(ParameterError, match="neither interval nor draw"):
        plot_overimputation(silent, frame)
    with pytest.raises(ParameterError, match="fitted imputer"):
        plot_overimputation("em", frame)
    with pytest.raises(ParameterError, match="level is 1"):
        plot_overimputation(IntervalImputer(), frame, level=1)
    with pytest.raises(ParameterError, match="n_cells is 0"):
        plot_overimputation(IntervalImputer(), frame, n_cells=0)
    fitted = make("em", random_state=0).fit(np.column_stack([frame, frame**2]))
    with pytest.raises(DataError, match="fitted on 2"):
        plot_overimputation(fitted, frame)
    with pytest.raises(DataError, match="no observed cell"):
        plot_overimputation(fitted, np.full((3, 2), np.nan))
    with pytest.raises(ParameterError, match="does not fill"):
        plot_overimputation(IntervalImputer(), np.column_stack([frame, np.ones(10)]), columns=[1])
    with pytest.raises(ValueError, match="not fitted"):
        plot_overimputation(make("em"), frame)


# plot_calibration


def cells_hidden(frame: np.ndarray, share: float, seed: int) -> tuple[list[Any], int]:
    figure = plot_calibration(IntervalImputer(), frame, hide_share=share, random_state=seed)
    return figure.axes, int(figure.get_suptitle().split()[2].replace(",", ""))


def test_calibration_when_intervals_are_correct_then_curves_are_diagonal_and_transforms_flat(
    labelled,
) -> None:
    frame = np.tile(evenly(2_000), 3)
    (left, right), n_cells = cells_hidden(frame, 0.5, 0)
    together = labelled(left, "all cells")[0]
    assert together.get_xdata() == pytest.approx(np.arange(10, 91, 10))
    assert together.get_ydata() == pytest.approx(together.get_xdata(), abs=4)
    assert abs(n_cells - 3_000) < 150
    assert labelled(right, "share")[0].get_data().values == pytest.approx(np.full(10, 10), abs=2)
    assert [len(labelled(left, str(name))) for name in range(3)] == [1, 1, 1]


def test_calibration_when_every_cell_of_some_is_hidden_then_coverage_is_exact(labelled) -> None:
    frame = np.array([[0.1, 0.5], [0.3, 0.5], [0.5, 0.51], [0.7, 0.5]])
    figure = plot_calibration(IntervalImputer(), frame, hide_share=1 - 1e-12, levels=[0.9, 0.5], random_state=0)
    left = figure.axes[0]
    assert labelled(left, "all cells")[0].get_xdata() == pytest.approx([50, 90])
    assert labelled(left, "all cells")[0].get_ydata() == pytest.approx([87.5, 100])
    assert labelled(left, "0")[0].get_ydata() == pytest.approx([75, 100])
    assert labelled(left, "1")[0].get_ydata() == pytest.approx([100, 100])


def test_calibration_when_intervals_are_too_narrow_then_the_ends_of_the_histogram_are_high(labelled) -> None:
    figure = plot_calibration(IntervalImputer(width=0.5), np.tile(evenly(1_000), 2), random_state=0)
    shares = labelled(figure.axes[1], "share")[0].get_data().values
    assert min(shares[0], shares[-1]) > 25
    assert sum(shares) == pytest.approx(100)
    assert (labelled(figure.axes[0], "all cells")[0].get_ydata() < np.arange(10, 91, 10)).all()


def test_calibration_when_there_are_only_draws_then_it_agrees_with_intervals(labelled) -> None:
    frame = evenly(1_500)
    curves = [
        labelled(plot_calibration(imputer, frame, random_state=4).axes[0], "all cells")[0].get_ydata()
        for imputer in (IntervalImputer(), DrawImputer())
    ]
    assert curves[0] == pytest.approx(curves[1], abs=0.5)


def test_calibration_when_one_column_is_off_then_it_is_named() -> None:
    frame = np.column_stack([evenly(800), np.full((800, 1), 5.0) + evenly(800)])
    left = plot_calibration(IntervalImputer(), frame, random_state=0).axes[0]
    assert [text.get_text() for text in left.texts] == ["1"]


def test_calibration_when_the_table_is_long_then_a_sample_of_rows_is_used() -> None:
    _, n_cells = cells_hidden(evenly(50_000), 0.5, 0)
    assert 800 < n_cells < 1_200


def test_calibration_when_it_is_impossible_then_the_error_says_why() -> None:
    frame = evenly(20)
    with pytest.raises(ParameterError, match="hide_share is 0"):
        plot_calibration(IntervalImputer(), frame, hide_share=0)
    with pytest.raises(ParameterError, match=r"levels is 1\.5"):
        plot_calibration(IntervalImputer(), frame, levels=[1.5])
    with pytest.raises(ParameterError, match="list of numbers"):
        plot_calibration(IntervalImputer(), frame, levels=0.5)
    with pytest.raises(ParameterError, match="levels is empty"):
        plot_calibration(IntervalImputer(), frame, levels=[])
    with pytest.raises(DataError, match="No observed cell was hidden"):
        plot_calibration(IntervalImputer(), frame, hide_share=1e-9)
    mixed = pd.DataFrame({"word": ["a", "b"] * 10, "x": np.arange(20) / 8})
    fitted = make("em", random_state=0).fit(mixed)
    with pytest.raises(ParameterError, match="no intervals"):
        plot_calibration(fitted, mixed, columns=["word"])
    with pytest.raises(DataError, match="no column of numbers"):
        plot_calibration(make("em", random_state=0).fit(mixed[["word"]]), mixed[["word"]])
    incomplete = IntervalImputer()
    incomplete.interval = lambda X, level: (X, X)  # type: ignore[method-assign]
    with pytest.raises(DataError, match="without an interval"):
        plot_calibration(incomplete, frame, random_state=0)  # a chance of one in a hundred hides none of twenty cells


# all plots


def test_quantiles_when_they_equal_the_truth_then_its_transform_is_randomised() -> None:
    predicted = PredictiveQuantiles(np.array([0.25, 0.5, 0.75]), np.array([[0.0, 1.0], [1.0, 1.0], [1.0, 1.0]]))
    truth = np.array([1.0, 1.0])
    assert predicted.pit(truth, np.zeros(2)).tolist() == [0.25, 0]
    assert predicted.pit(truth, np.ones(2)).tolist() == [1, 1]
    low, high = predicted.interval(0.25)
    assert (low[0], high[0]) == (0.5, 1)
    assert predicted.interval(0.9)[0].tolist() == [0, 1]  # no extrapolation beyond the outermost quantiles
    one = PredictiveQuantiles(np.array([0.25, 0.75]), np.array([[0.0], [1.0]]))
    assert [end.item() for end in one.interval(0.5)] == [0.0, 1.0]
    assert one.pit(np.array([2.0]), np.array([0.5])).item() == 0.875


def test_binomial_band_when_shares_are_binomial_then_it_covers_them_at_its_level() -> None:
    shares = np.random.default_rng(0).binomial(50, 0.8, 20_000) / 50
    low, high = binomial_band(50, 0.8)
    assert 0.95 <= np.mean((shares >= low) & (shares <= high)) < 0.98
    assert [float(end) for end in binomial_band(200, 0.9)] == [0.855, 0.94]


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow", "numpy"])
def test_calibration_when_kinds_of_frames_differ_then_plots_do_not(labelled, kind: str) -> None:
    rows = np.random.default_rng(0).normal(size=(80, 1)) + 0.5 * np.random.default_rng(1).normal(size=(80, 2))
    frame = pd.DataFrame(rows, columns=["a", "b"])
    made = {"pandas": frame, "polars": pl.from_pandas(frame), "pyarrow": pa.Table.from_pandas(frame), "numpy": rows}
    left = plot_calibration(make("em", random_state=0).fit(made[kind]), made[kind], random_state=0).axes[0]
    pandas = plot_calibration(make("em", random_state=0).fit(frame), frame, random_state=0).axes[0]
    curve, other = (labelled(axes, "all cells")[0].get_ydata() for axes in (left, pandas))
    assert curve == pytest.approx(other)


def test_plots_when_made_then_they_are_transparent_and_unknown_to_pyplot() -> None:
    loaded = "matplotlib.pyplot" in sys.modules
    figures = [
        plot_distributions(hide(evenly(9), np.eye(9, 1, dtype=bool)), evenly(9)),
        plot_overimputation(IntervalImputer(), evenly(9)),
        plot_calibration(IntervalImputer(), evenly(99), random_state=0),
        plot_trace(CHAIN),
    ]
    for figure in figures:
        assert figure.get_facecolor()[3] == 0
        assert all(axes.get_facecolor()[3] == 0 for axes in figure.axes)
    assert ("matplotlib.pyplot" in sys.modules) == loaded


@pytest.mark.parametrize("draw", [
    lambda: plot_distributions(evenly(3), evenly(3)),
    lambda: plot_overimputation(IntervalImputer(), evenly(3)),
    lambda: plot_calibration(IntervalImputer(), evenly(3)),
    lambda: plot_trace(CHAIN),
])  # fmt: skip
def test_plots_when_matplotlib_is_missing_then_the_error_has_the_command_that_installs_it(
    draw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"pip install '.*\[report\]'"):
        draw()


def test_frame_when_plotted_then_it_is_unchanged() -> None:
    frame = pd.DataFrame({"x": [0.5, 1.5, None, 3.5] * 5, "n": range(20)})
    before = frame.copy()
    imputer = make("em", kinds={"n": "integer"}, random_state=0).fit(frame)
    plot_overimputation(imputer, frame, n_cells=5, random_state=0)
    plot_calibration(imputer, frame, random_state=0)
    pd.testing.assert_frame_equal(frame, before)
    assert read_frame(frame).names == ["x", "n"]
