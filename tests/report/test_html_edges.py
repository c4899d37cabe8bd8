"""Reports on odd tables, their files, and what is said when one cannot be made."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from report_pages import Page, mean_fill

from mcflow import MCFlowImputer
from mcflow.baselines import make
from mcflow.data.datasets import nhanes_path
from mcflow.errors import DataError, MissingExtraError, OutputError
from mcflow.report import report_facts, report_html, write_report


def test_table_without_holes_says_so() -> None:
    rows = np.random.default_rng(0).normal(size=(30, 3))
    imputer, filled = mean_fill(rows)
    page = Page(report_html(imputer, rows, filled))
    assert "No cell is missing." in page.text
    assert "nothing to compare" in page.text


def test_table_of_one_column_and_columns_without_values_are_reported() -> None:
    one = pd.DataFrame({"a": [1.0, None, 3.0, 4.5] * 10})
    assert "1 column" in Page(report_html(*(make("mean").fit(one), one, make("mean").fit_transform(one)))).text
    empty = pd.DataFrame({"a": [1.5, None, 3.0] * 10, "none": [None] * 30, "same": ["x", None, "x"] * 10})
    with pytest.warns(UserWarning, match="without any observed"):
        imputer = make("mean").fit(empty)
    page = Page(report_html(imputer, empty, imputer.transform(empty)))
    assert "Not filled: none." in page.text
    assert "30 stay missing" in page.text


def test_constant_table_has_nothing_to_train() -> None:
    rows = np.array([[1.0, 2.0], [1.0, np.nan]] * 20)
    imputer = MCFlowImputer(random_state=0).fit(rows)
    page = Page(report_html(imputer, rows, imputer.transform(rows)))
    assert "nothing to train" in page.text


def test_file_is_whole_or_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mcflow.report import html

    rows = np.array([[1.0, 2.0], [2.0, np.nan]] * 20)
    imputer, filled = mean_fill(rows)
    path = tmp_path / "report.html"
    write_report(path, imputer, rows, filled)
    first = path.read_bytes()
    assert first.decode() == report_html(imputer, rows, filled)

    def fail(*_: Any, **__: Any) -> str:
        raise RuntimeError("stopped")

    monkeypatch.setattr(html, "_render", fail)
    with pytest.raises(RuntimeError):
        write_report(path, imputer, rows, filled)
    assert path.read_bytes() == first
    assert list(tmp_path.iterdir()) == [path]


def test_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    rows = np.array([[1.0, 2.0], [2.0, np.nan]] * 20)
    imputer, filled = mean_fill(rows)
    with pytest.raises(OutputError, match="not a folder"):
        write_report(tmp_path / "no" / "report.html", imputer, rows, filled)


def test_other_rows_than_those_that_were_filled_are_refused() -> None:
    rows = np.array([[1.0, 2.0], [2.0, np.nan]] * 20)
    imputer, filled = mean_fill(rows)
    with pytest.raises(DataError, match="39 rows"):
        report_html(imputer, rows, filled[1:])
    with pytest.raises(DataError, match="differs from frame"):
        report_html(imputer, rows, filled + 1)


@pytest.mark.parametrize("package", ["matplotlib.figure", "jinja2"])
def test_missing_extra_is_named_with_the_line_that_installs_it(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'mcflow\[report\]'"):
        report_html(None, np.zeros((3, 2)))


def test_nhanes_has_its_known_holes() -> None:
    facts = report_facts(None, pd.read_parquet(nhanes_path()))["missing"]
    assert (facts["rows"], facts["n_columns"]) == (5265, 42)
    assert facts["columns"][0]["name"] == "total_percent_fat"
