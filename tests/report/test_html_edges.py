"""Reports on unusual tables, report files, and errors."""

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
from mcflow.errors import DataError, MissingExtraError, OutputError
from mcflow.files.datasets import nhanes_path
from mcflow.imputers.persistence import load_table_model
from mcflow.report import report_facts, report_html, write_report


def test_complete_table_has_nothing_to_compare() -> None:
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
    assert "30 are still missing" in page.text


def test_constant_table_has_nothing_to_train() -> None:
    rows = np.array([[1.0, 2.0], [1.0, np.nan]] * 20)
    imputer = MCFlowImputer(random_state=0).fit(rows)
    page = Page(report_html(imputer, rows, imputer.transform(rows)))
    assert "nothing to train" in page.text


def test_file_is_written_atomically(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mcflow.report import html

    rows = np.array([[1.0, 2.0], [2.0, np.nan]] * 20)
    imputer, filled = mean_fill(rows)
    path = tmp_path / "report.html"
    write_report(path, imputer, rows, filled, date="2024-02-29")
    first = path.read_bytes()
    assert first.decode() == report_html(imputer, rows, filled, date="2024-02-29")

    def fail(*_: Any, **__: Any) -> str:
        raise RuntimeError("stopped")

    monkeypatch.setattr(html, "_render", fail)
    with pytest.raises(RuntimeError):
        write_report(path, imputer, rows, filled)
    assert path.read_bytes() == first
    assert list(tmp_path.iterdir()) == [path]


def test_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    rows = np.array([[1.0, 2.0], [2.0, np.nan]] * 20)
    imputer, filled = mean_fill(rows)
    with pytest.raises(OutputError, match="not a folder"):
        write_report(tmp_path / "no" / "report.html", imputer, rows, filled)


def test_other_rows_than_those_that_were_filled_are_rejected() -> None:
    rows = np.array([[1.0, 2.0], [2.0, np.nan]] * 20)
    imputer, filled = mean_fill(rows)
    with pytest.raises(DataError, match="39 rows"):
        report_html(imputer, rows, filled[1:])
    with pytest.raises(DataError, match="differs from frame"):
        report_html(imputer, rows, filled + 1)


@pytest.mark.parametrize("package", ["matplotlib.figure", "jinja2"])
def test_missing_extra_is_named_with_its_install_command(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=r"pip install '.*\[report\]'"):
        report_html(None, np.zeros((3, 2)))


def test_nhanes_has_its_known_missing_cells() -> None:
    facts = report_facts(None, pd.read_parquet(nhanes_path()))["missing"]
    assert (facts["rows"], facts["n_columns"]) == (5265, 42)
    assert facts["columns"][0]["name"] == "total_percent_fat"


def messy() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(200, 3)), columns=["x", "y", "z"])
    table["y"] += table["x"]
    table["key"] = [f"text {k}" for k in range(200)]
    table.loc[::4, "y"] = np.nan
    table.loc[0, "z"] = np.nan
    return table


@pytest.mark.filterwarnings("ignore::mcflow.errors.McflowWarning")
def test_report_opens_with_a_verdict_the_file_and_every_column() -> None:
    table = messy()
    imputer = MCFlowImputer(max_epochs=1, random_state=0).fit(table)
    imputer.history_.column_errors = [(1, 60, 0.7071), (2, 60, 1.02)]
    page = report_html(imputer, table, imputer.transform(table), source="messy.csv", date="2024-02-29")
    assert "<p>messy.csv, 2024-02-29</p>" in page
    assert "not used: key" in page
    assert page.count('<p class="verdict">') == 3
    assert page.index('<p class="verdict">') < page.index("In detail")
    assert "1 of 2 columns are clearly better than the average value of the column; those of z are not." in page
    section = page[page.index('<section id="inspection"') : page.index('<section id="missing"')]
    for words in ("a different value in every row", ">0.71</td>", ">1.02</td>"):
        assert words in section
    for name in table:
        assert f'<th scope="row">{name}</th>' in section


@pytest.mark.filterwarnings("ignore::mcflow.errors.McflowWarning")
def test_column_with_one_filled_cell_is_not_drawn() -> None:
    table = messy()
    imputer, filled = mean_fill(table)
    page = report_html(imputer, table, filled)
    assert "fewer than 5 cells were filled: z." in page
    assert [one["name"] for one in report_facts(imputer, table, filled)["columns"]["drawn"]] == ["y"]


def test_notes_of_an_evaluation_are_paragraphs() -> None:
    from mcflow import evaluate

    rows = np.random.default_rng(0).normal(size=(100, 2))
    found = evaluate(rows, methods=["mean"], max_time=0.2).to_dict()
    page = report_html(None, rows, evaluation=found)
    assert f'<p class="soft">{found["settings"]["notes"][0]}' in page
    assert "notes=" not in page


@pytest.mark.filterwarnings("ignore::mcflow.errors.McflowWarning")
def test_error_of_every_column_is_measured_kept_in_the_file_and_reported(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=400)
    noise = rng.normal(size=400)
    table = pd.DataFrame(
        {"x": x, "y": 2 * x + 0.1 * noise, "noise": noise[::-1], "sign": np.where(x > 0, "up", "down")}
    )
    table = table.mask(rng.random(table.shape) < 0.2)
    imputer = MCFlowImputer(max_epochs=20, random_state=0).fit(table)
    errors = {table.columns[k]: error for k, cells, error in imputer.history_.column_errors if cells >= 20}
    assert set(errors) == set(table.columns)
    assert max(errors["x"], errors["y"]) < 0.5
    assert 0.8 < errors["noise"] < 1.2
    assert errors["sign"] < 0.5
    imputer.save(tmp_path / "model.mcflow")
    assert load_table_model(tmp_path / "model.mcflow").history_.column_errors == imputer.history_.column_errors
    page = report_html(imputer, table, imputer.transform(table))
    section = page[page.index('<section id="inspection"') : page.index('<section id="missing"')]
    assert f">{errors['noise']:.2f}</td>" in section
