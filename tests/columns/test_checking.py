"""What `check` says of new data, and that `transform` takes what it calls ok and refuses the rest."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.sparse import csr_matrix
from sklearn.exceptions import NotFittedError

from mcflow import MCFlowImputer
from mcflow.columns.checking import CheckReport, Finding, check_table
from mcflow.errors import DataError


def frame(n_rows: int = 120) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    low = rng.random(n_rows)
    table = pd.DataFrame(
        {
            "low": low,
            "mid": low + rng.random(n_rows),
            "high": low + 1 + rng.random(n_rows),
            "city": rng.choice(["Bern", "Bonn", "Graz"], n_rows),
            "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 300, n_rows), unit="D"),
            "note": [[k] for k in range(n_rows)],
            "one": 5.0,
        }
    )
    table.loc[::10, "high"] = np.nan
    table.loc[::12, "city"] = None
    return table


@pytest.fixture(scope="module")
def imputer() -> MCFlowImputer:
    return MCFlowImputer(max_epochs=1, random_state=0, rules=["low <= mid <= high", "low >= 0"]).fit(frame())


@pytest.fixture(scope="module")
def of_array() -> MCFlowImputer:
    return MCFlowImputer(max_epochs=1, random_state=0).fit(frame()[["low", "mid"]].to_numpy())


def same(table: pd.DataFrame) -> pd.DataFrame:
    return table


def with_low_above_high(table: pd.DataFrame) -> pd.DataFrame:
    table.loc[1:3, "low"] = 9.0
    return table


def with_missing(table: pd.DataFrame) -> pd.DataFrame:
    table.loc[: len(table) // 2, "low"] = np.nan
    return table


def with_infinity(table: pd.DataFrame) -> pd.DataFrame:
    table.loc[3:4, "high"] = np.inf
    return table


#: A change of the table, what is found, where, whether `transform` takes the table, and some words of the text.
CHANGES = {
    "the same": (same, set(), set(), True, "matches the table of the fit"),
    "fewer rows": (lambda t: t.head(1), {"missing cells"}, {"high", "city"}, True, "at fit in 10%"),
    "a column gone": (
        lambda t: t.drop(columns="mid"),
        {"missing column"},
        {"mid"},
        False,
        "'mid' of the fit is missing",
    ),
    "a column more": (lambda t: t.assign(x=1), {"extra column"}, {"x"}, False, "'x' is not a column of the fit"),
    "another name": (
        lambda t: t.rename(columns={"note": "n"}),
        {"missing column", "extra column"},
        {"note", "n"},
        False,
        "'n' is not a column of the fit",
    ),
    "another order": (lambda t: t[t.columns[::-1]], {"order"}, {None}, False, "another order"),
    "floats that are less exact": (
        lambda t: t.assign(low=t["low"].astype("float32")),
        {"type"},
        {"low"},
        True,
        "has the type float; at fit it had double",
    ),
    "numbers that became text": (
        lambda t: t.assign(low="x"),
        {"type"},
        {"low"},
        False,
        "had the type double at fit, and has the type",
    ),
    "cells of mixed types": (
        lambda t: t.assign(low=pd.Series([1.0, "x"] * 60, dtype=object)),
        {"type"},
        {"low"},
        False,
        "mixed types",
    ),
    "days that became numbers": (lambda t: t.assign(day=3.0), {"type"}, {"day"}, False, "'day' had the type"),
    "numbers out of range": (lambda t: t.assign(high=t["high"] + 5), {"range"}, {"high"}, True, "108 values outside"),
    "days out of range": (
        lambda t: t.assign(day=t["day"] + pd.Timedelta(days=400)),
        {"range"},
        {"day"},
        True,
        "'day' has 120 values outside",
    ),
    "another constant": (lambda t: t.assign(one=6.0), {"range"}, {"one"}, True, "'one' has 120 values outside"),
    "infinities": (with_infinity, {"range"}, {"high"}, False, "2 infinite values"),
    "new categories": (
        lambda t: t.assign(city=["Wien", "Rom"] * 60),
        {"new category"},
        {"city"},
        True,
        "did not see: 'Wien', 'Rom'.",
    ),
    "many new categories": (
        lambda t: t.assign(city=[f"town {k}" for k in range(120)]),
        {"new category"},
        {"city"},
        True,
        "'town 4' …",
    ),
    "more missing cells": (with_missing, {"missing cells"}, {"low"}, True, "missing in 51% of the rows; at fit in 0%"),
    "nothing but missing cells": (lambda t: t.assign(low=None), {"missing cells"}, {"low"}, True, "missing in 100%"),
    "rules broken": (
        with_low_above_high,
        {"range", "constraint"},
        {"low", None},
        True,
        "3 rows have observed cells that violate the rule 'low <= mid'",
    ),
    "a rule that follows broken": (
        lambda t: with_low_above_high(t).assign(mid=np.nan),
        {"range", "constraint", "missing cells"},
        {"low", "mid", None},
        True,
        "violate the rule 'low <= high'",
    ),
    "a rule with a number broken": (
        lambda t: t.assign(low=-t["low"]),
        {"range", "constraint"},
        {"low", None},
        True,
        "120 rows have observed cells that violate the rule 'low >= 0'",
    ),
}


def takes(imputer: MCFlowImputer, table: object) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            imputer.transform(table)
        except (DataError, TypeError):
            return False
    return True


@pytest.mark.parametrize("name", CHANGES)
def test_check_when_a_table_is_changed_says_so_and_agrees_with_transform(imputer, name) -> None:
    change, whats, columns, ok, words = CHANGES[name]
    table = change(frame())
    before = table.copy(deep=True)
    report = imputer.check(table)
    assert {finding.what for finding in report.findings} == whats
    assert {finding.column for finding in report.findings} == columns
    assert words in str(report)
    assert report.ok is ok
    assert bool(report) is ok
    assert takes(imputer, table) is ok
    pd.testing.assert_frame_equal(table, before)


@pytest.mark.parametrize("name", CHANGES)
def test_report_when_written_as_json_says_the_same(imputer, name) -> None:
    report = imputer.check(CHANGES[name][0](frame()))
    plain = json.loads(json.dumps(report.to_dict()))
    assert plain["ok"] is report.ok
    assert [Finding(**finding) for finding in plain["findings"]] == report.findings


def test_report_when_a_finding_breaks_marks_it() -> None:
    report = CheckReport([Finding("a", "missing cells", "Many."), Finding(None, "order", "Other.", breaks=True)])
    assert str(report) == "- Many.\n! Other."
    assert not report.ok
    assert str(CheckReport()) == "The table matches the table of the fit."
    assert CheckReport().ok


def test_report_when_names_are_no_texts_is_still_json() -> None:
    report = CheckReport([Finding(("a", 1), "missing cells", "Many."), Finding(3, "missing cells", "Many.")])
    assert [f["column"] for f in json.loads(json.dumps(report.to_dict()))["findings"]] == ["('a', 1)", 3]


def test_new_categories_when_they_count_as_missing_do_not_break(imputer) -> None:
    table = frame().assign(city="Wien")
    report = check_table(table, imputer.schema_, imputer.constraints_, "missing")
    assert [finding.what for finding in report.findings] == ["new category"]
    assert report.ok


@pytest.mark.parametrize("make", [pl.from_pandas, lambda t: pa.Table.from_pandas(t, preserve_index=False)])
def test_check_when_frames_are_of_another_kind_agrees_with_transform(imputer, make) -> None:
    table = frame()
    for given in (make(table), make(table.assign(city="Wien")), make(table.drop(columns="low"))):
        report = imputer.check(given)
        assert takes(imputer, given) is report.ok
    assert not imputer.check(make(table.drop(columns="low"))).ok


@pytest.mark.parametrize(
    "given",
    [
        np.zeros((3, 2)),
        np.zeros((3, 1)),
        np.zeros((3, 3)),
        np.array([[np.inf, 1.0]]),
        np.array([[True, False]]),
        np.array([["a", 1.0]], dtype=object),
        [[1.0, 2.0]],
        pd.DataFrame({"low": [1.0], "mid": [2.0]}),
        pd.DataFrame({0: [1.0], 1: [2.0]}),
        np.zeros(3),
        np.zeros((0, 2)),
        None,
        "table",
        csr_matrix(np.eye(2)),
    ],
    ids=str,
)
def test_check_when_the_fit_had_no_names_agrees_with_transform(of_array, given) -> None:
    report = of_array.check(given)
    assert takes(of_array, given) is report.ok


def test_check_when_only_the_table_has_no_names_goes_by_position() -> None:
    table = frame()[["low", "mid"]]
    imputer = MCFlowImputer(max_epochs=1, random_state=0).fit(table)
    for given in (table.to_numpy(), table.to_numpy()[:, :1], table.set_axis([0, 1], axis=1)):
        assert takes(imputer, given) is imputer.check(given).ok
    report = imputer.check(table.to_numpy()[:, :1])
    assert [finding.what for finding in report.findings] == ["missing column"]
    assert "has 1 columns; at fit it had 2" in str(report)
    report = imputer.check(np.column_stack([table, table]))
    assert [finding.what for finding in report.findings] == ["extra column"]
    assert [f.column for f in imputer.check(table.to_numpy() * [1, 9]).findings] == ["mid"]


def test_check_when_not_fitted_says_so() -> None:
    with pytest.raises(NotFittedError):
        MCFlowImputer().check(frame())
