"""Evaluations of small tables, from the arguments to the printed result."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from rich.console import Console

import mcflow
from mcflow import evaluate
from mcflow.baselines.mice import MiceImputer
from mcflow.baselines.simple import MeanImputer
from mcflow.errors import DataError, McflowWarning, ParameterError
from mcflow.evaluation import Evaluation
from mcflow.evaluation.methods import compared_methods
from mcflow.evaluation.result import print_evaluation
from mcflow.evaluation.run import _draws_for


def study(n_rows: int = 300) -> pd.DataFrame:
    """Return two correlated columns, one of noise, a category and a date; all but the first have missing cells."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=n_rows)
    frame = pd.DataFrame({"x": x, "y": 10 * x + rng.normal(size=n_rows), "noise": rng.normal(size=n_rows)})
    frame["side"] = np.where(x > 0, "right", "left")
    frame["day"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.round(50 * x + rng.normal(size=n_rows)), unit="D")
    missing = rng.random(frame.shape) < 0.15
    missing[:, 0] = False
    return frame.mask(missing)


@pytest.fixture(scope="module")
def real() -> Evaluation:
    """Evaluate mcflow itself, with a short fit."""
    return evaluate(study(600), methods=["mean", "em"], max_time=2)


def scores(found: Evaluation) -> dict[str, Any]:
    return {column.name: column for column in found.per_column}


def test_top_level_name_is_the_function() -> None:
    from mcflow.evaluation import evaluate as own

    assert mcflow.evaluate is own


def test_mcflow_is_scored_beside_the_others_with_coverage_and_time(real) -> None:
    assert [one.name for one in real.methods] == ["mcflow", "mean", "em"]
    ours = real.methods[0]
    assert ours.error_message is None
    assert ours.relative_error < 0.9
    assert 0.5 < ours.coverage <= 1
    assert ours.seconds > 0
    assert real.methods[1].relative_error == pytest.approx(1)
    assert scores(real)["y"].methods["mcflow"].relative < 0.5
    assert "mcflow stopped training after 2 s (" in " ".join(real.settings["notes"])


def test_complete_columns_have_no_hidden_cells(real) -> None:
    assert [column.name for column in real.per_column] == ["y", "noise", "side", "day"]
    assert sum(column.hidden for column in real.per_column) == real.hidden_cells


def test_noise_cannot_be_predicted_and_is_named_in_the_verdict(real) -> None:
    assert [column.name for column in real.per_column if not column.predictable] == ["noise"]
    assert any(line.startswith("Columns that could not be predicted") and "noise" in line for line in real.verdict)


def test_kinds_decide_measure_unit_and_coverage(real) -> None:
    found = scores(real)
    assert (found["side"].measure, found["y"].measure) == ("error rate", "rmse")
    assert (found["day"].unit, found["y"].unit) == ("days", "")
    assert {name: score.coverage for name, score in found["side"].methods.items()} == {
        "mean": None,
        "em": None,
        "mcflow": None,
    }
    assert 0.7 < found["y"].methods["em"].coverage <= 1
    assert 20 < found["day"].methods["mean"].error < 80


def test_dictionary_holds_the_promised_keys_and_is_json(real) -> None:
    plain = json.loads(json.dumps(real.to_dict(), allow_nan=False))
    assert {"rows", "columns", "hidden_cells", "repeats", "level", "methods", "per_column", "verdict"} < set(plain)
    assert {"name", "seconds", "relative_error", "coverage", "error_message"} == set(plain["methods"][0])
    first = plain["per_column"][0]
    assert {"name", "kind", "measure", "hidden", "predictable", "methods"} <= set(first)
    assert {"error", "relative", "coverage"} <= set(first["methods"]["mcflow"])


def test_text_html_and_frame_show_the_same_figures(real) -> None:
    text, html, frame = str(real), real._repr_html_(), real.to_frame()
    error = scores(real)["y"].methods["mcflow"].error
    assert f"{error:.4g}" in text
    assert f"{error:.4g}" in html
    row = frame[(frame["column"] == "y") & (frame["method"] == "mcflow")]
    assert row["error"].item() == error
    for sentence in real.verdict:
        assert sentence.split(":")[0].split(";")[0][:30] in text
    assert html.startswith("<div>")


@pytest.mark.usefixtures("swift")
def test_names_are_escaped_in_html() -> None:
    frame = study().rename(columns={"y": "<b>y</b> [red]"})
    found = evaluate(frame, methods=["mean"])
    assert "&lt;b&gt;y&lt;/b&gt;" in found._repr_html_()
    assert "[red]" in str(found)


@pytest.mark.usefixtures("swift")
def test_same_seed_gives_the_same_and_another_hides_other_cells() -> None:
    first, again, other = (evaluate(study(), methods=["mice(n_chains=2)"], random_state=k) for k in (0, 0, 1))
    assert [c.methods for c in first.per_column] == [c.methods for c in again.per_column]
    assert [c.methods for c in first.per_column] != [c.methods for c in other.per_column]


@pytest.mark.usefixtures("swift")
@pytest.mark.parametrize("kind", ["polars", "pyarrow"])
def test_every_kind_of_frame_gives_the_same(kind) -> None:
    pandas = study()
    arrow = pa.Table.from_pandas(pandas, preserve_index=False)
    other = pl.from_arrow(arrow) if kind == "polars" else arrow
    ours, theirs = (evaluate(frame, methods=["mean"]) for frame in (pandas, other))
    for one, two in zip(ours.per_column, theirs.per_column, strict=True):
        assert one.methods["mcflow"].error == pytest.approx(two.methods["mcflow"].error)


@pytest.mark.usefixtures("swift")
def test_complete_array_is_hidden_at_random_with_a_note() -> None:
    rows = np.random.default_rng(0).normal(size=(200, 3))
    before = rows.copy()
    found = evaluate(rows, methods=["mean"])
    assert (rows == before).all()
    assert found.settings["pattern"] == "random"
    assert "too few incomplete rows to copy their patterns" in found.settings["notes"][0]
    assert [column.hidden for column in found.per_column] == pytest.approx([40, 40, 40], abs=20)


@pytest.mark.usefixtures("swift")
def test_many_rows_are_sampled_with_a_note() -> None:
    found = evaluate(study(), methods=["mean"], max_rows=200)
    assert found.rows == 200
    assert found.settings["notes"][0] == "A sample of 200 of 300 rows."


@pytest.mark.usefixtures("swift")
def test_repeats_hide_more_cells() -> None:
    once, thrice = (evaluate(study(), methods=["mean"], repeats=repeats) for repeats in (1, 3))
    assert thrice.hidden_cells > 2.5 * once.hidden_cells
    assert "over 3 repeats" in thrice.settings["notes"][0]


@pytest.mark.usefixtures("swift")
def test_failing_baseline_is_reported_and_not_tried_again(monkeypatch, capsys) -> None:
    calls = []

    def fail(self, *_: Any) -> None:
        calls.append(1)
        raise ValueError("a singular matrix\nand more")

    monkeypatch.setattr(MiceImputer, "_fit_values", fail)
    found = evaluate(study(), methods=["mice"], repeats=2, verbose="plain")
    assert len(calls) == 1
    said = capsys.readouterr().err
    assert "[2/6] mice: failed after" in said
    assert "[5/5] mcflow: " in said
    failed = next(one for one in found.methods if one.name == "mice")
    assert failed.error_message == "ValueError: a singular matrix"
    assert failed.relative_error is None
    assert "mice" not in found.per_column[0].methods
    assert "mice failed: ValueError: a singular matrix" in found.verdict
    assert "failed" in str(found)


def test_failing_mcflow_is_reported_beside_the_others(monkeypatch) -> None:
    monkeypatch.setattr(mcflow.MCFlowImputer, "_fit_values", lambda *_: 1 / 0)
    found = evaluate(study(), methods=["em"])
    assert found.methods[0].error_message == "ZeroDivisionError: division by zero"
    assert found.per_column[0].methods["em"].against_mcflow is None
    assert str(found)


def test_failing_mean_is_an_error(monkeypatch) -> None:
    monkeypatch.setattr(MeanImputer, "_fit_values", lambda *_: 1 / 0)
    monkeypatch.setattr(mcflow.MCFlowImputer, "_fit_values", lambda *_: 1 / 0)
    with pytest.raises(DataError, match="The mean, which other methods are compared with, failed: ZeroDivisionError"):
        evaluate(study(), methods=["mean"])


@pytest.mark.usefixtures("swift")
def test_roles_and_kinds_reach_every_method() -> None:
    found = evaluate(study(), methods=["mean"], roles={"noise": "ignore", "y": "predictors_only"})
    assert [column.name for column in found.per_column] == ["side", "day"]


@pytest.mark.usefixtures("swift")
def test_column_keeps_its_kind_when_few_cells_are_left() -> None:
    frame = study()
    frame["code"] = [f"c{k % 20}" if k % 4 == 0 else None for k in range(len(frame))]
    found = evaluate(frame, methods=["mean"], max_rows=250, kinds={"code": "category"})
    assert scores(found)["code"].measure == "error rate"
    assert scores(found)["code"].methods["mean"].error is not None


@pytest.mark.usefixtures("swift")
def test_identifiers_are_not_filled_and_noted() -> None:
    frame = study().assign(key=[f"K{k:04d}" for k in range(300)])
    with pytest.warns(McflowWarning, match="key"):
        found = evaluate(frame, methods=["mean"])
    assert "Columns that no method fills: key." in found.settings["notes"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"methods": ["missforst"]}, "Did you mean 'missforest'"),
        ({"methods": ["knn(n_neigbors=3)"]}, "n_neighbors"),
        ({"methods": "mean"}, "has to be a list"),
        ({"methods": [3]}, "has to be a list"),
        ({"methods": ["em", "em"]}, "more than once"),
        ({"methods": ["mcflow", "mcflow(max_epochs=2)"]}, "Name it once"),
        ({"methods": ["mcflow(max_epoch=2)"]}, "max_epochs"),
        ({"methods": ["mcflow:papr"]}, "paper"),
        ({"share": 0.9}, "share is 0.9"),
        ({"repeats": 0}, "repeats is 0"),
        ({"level": 1.0}, "level is 1.0"),
        ({"pattern": "holes"}, "pattern is 'holes'"),
        ({"max_time": -1}, "max_time is -1"),
        ({"verbose": "loud"}, "verbose is 'loud'"),
        ({"kind": {}}, "Did you mean 'kinds'"),
    ],
)
def test_wrong_arguments_are_rejected_before_anything_is_fitted(given, words) -> None:
    with pytest.raises(ParameterError, match=words):
        evaluate(study(60), **given)


def test_table_without_a_column_to_fill_is_rejected() -> None:
    with pytest.raises(DataError, match="no column that is filled"):
        evaluate(study(60), roles=dict.fromkeys(study(60).columns, "predictors_only"))


def test_missing_cells_in_columns_that_are_not_filled_give_nothing_to_hide() -> None:
    frame = pd.DataFrame({"a": [1.5, None] * 30, "b": np.arange(60.0) ** 2})
    with pytest.raises(DataError, match="No known cell can be hidden"):
        evaluate(frame, roles={"a": "predictors_only"}, pattern="own")


def test_methods_get_short_names_where_these_are_unique() -> None:
    named = compared_methods(["missforest(n_trees=5)", "missforest(n_trees=9)", "knn(n_neighbors=3)"])
    assert [one.name for one in named] == [
        *("mean", "missforest(n_trees=5)", "missforest(n_trees=9)", "knn", "mcflow"),
    ]
    assert [one.name for one in compared_methods(["em", "mcflow:paper"])] == ["mean", "em", "mcflow:paper", "mcflow"]


def test_draws_of_an_interval_have_the_ranks_of_its_level() -> None:
    assert _draws_for(0.9) == (19, 1)
    assert _draws_for(0.5) == (15, 4)


@pytest.mark.usefixtures("swift")
def test_progress_shows_each_method_and_the_remaining_time(capsys) -> None:
    evaluate(study(), methods=["mice(n_chains=1)"], verbose="plain", repeats=2, max_time=30)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 6
    assert lines[0].startswith("[1/6] mean: ")
    assert "left: mice and 1:00 for the rest" in lines[0]
    assert lines[2].startswith("[3/6] mcflow: ")
    assert "about 0:" in lines[2]
    assert lines[5].startswith("[6/6] mcflow: ")
    assert "left" not in lines[5]


@pytest.mark.usefixtures("swift")
def test_progress_as_json_is_one_object_a_line(capsys) -> None:
    evaluate(study(), methods=["mean"], verbose="json", max_time=30)
    events = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(one["event"], one["name"]) for one in events] == [
        *(("method", "mean"), ("method_end", "mean"), ("method", "mcflow"), ("method_end", "mcflow")),
    ]
    assert events[2]["seconds_left"] == 30


@pytest.mark.parametrize("width", [80, 120])
def test_table_fits_the_terminal_with_every_method_and_the_intervals(real, width) -> None:
    page = io.StringIO()
    print_evaluation(real, Console(file=page, width=width))
    lines = page.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    heading = next(line for line in lines if "hidden" in line and "mcflow" in line)
    assert heading.split()[-4:] == ["mcflow", "mean", "em", "coverage"]
    assert ("measure" in heading) == (width == 120)


def test_column_with_a_single_hidden_cell_is_left_out_and_noted() -> None:
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.normal(size=(200, 3)), columns=list("abc"))
    rows.loc[:60, "a"] = np.nan
    rows.loc[0, "b"] = np.nan
    runs = (evaluate(rows, methods=["mean"], max_time=0.2, random_state=seed) for seed in range(20))
    found = next(one for one in runs if one.settings["notes"][-1].endswith("left out: b."))
    assert [column.name for column in found.per_column] == ["a"]
    assert found.hidden_cells == found.per_column[0].hidden
