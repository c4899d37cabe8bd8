"""Columns, rows, bins and figures that reports and diagnostics share."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from mcflow.columns.frames import read_frame
from mcflow.columns.schema import Column
from mcflow.evaluation.hidden_cells import place_in
from mcflow.report import canvas, tables
from mcflow.report.distributions import _Comparison
from mcflow.report.overimputation import check_share

LIGHT = """
import sys
from mcflow.report import summarise
loaded = sorted(name for name in sys.modules if name.startswith("mcflow.report"))
assert loaded == ["mcflow.report", "mcflow.report.tables"], loaded
assert not {"matplotlib", "jinja2", "torch"} & set(sys.modules), "a heavy package is loaded"
"""


def test_summarise_when_imported_then_plots_and_templates_are_not_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_schema_and_places_when_columns_are_empty_or_named_then_they_are_found() -> None:
    table = read_frame(np.array([[0.5, 1.0], [2.0, 2.0]]))
    assert [column.kind for column in tables.schema_of(table).columns] == ["continuous", "integer"]
    assert tables.named_positions(read_frame(np.zeros((2, 3))), [2, 0]) == [2, 0]
    empty_first = read_frame(np.array([[np.nan, 1.0], [np.nan, 2.0]]))
    assert place_in(read_frame(np.array([[1.0], [2.0]])), tables.schema_of(empty_first), 1) == 0


def test_summary_when_an_empty_column_was_dropped_then_the_others_are_found() -> None:
    rows = np.array([[np.nan, 1.0, 5.0], [np.nan, np.nan, 7.0], [np.nan, 3.0, 9.0]])
    filled = np.array([[1.0, 5.0], [2.0, 7.0], [3.0, 9.0]])
    found = tables.summarise(tables.schema_of(read_frame(rows)), rows, filled)
    assert [(one["missing"], one["filled"]) for one in found["columns"]] == [(3, 0), (1, 1), (0, 0)]
    assert found["columns"][1]["filled_typical"] == 2.0
    assert found["columns"][2]["observed_typical"] == 7.0


def test_selections_when_there_are_too_many_then_they_are_limited() -> None:
    assert tables.largest([4, 5, 6], [10, 30, 20], 2) == [5, 6]
    assert tables.sample_indices(3, 5).tolist() == [0, 1, 2]
    assert len(tables.sample_indices(100, 5)) == 5
    assert tables.evenly_spaced(10, 4).tolist() == [0, 3, 6, 9]
    assert tables.evenly_spaced(3, 4).tolist() == [0, 1, 2]


def test_shares_when_counted_then_they_are_percentages_of_all_cells() -> None:
    age = _Comparison(Column("age", "double", "integer", whole=True), np.arange(4.0), [np.array([2.0])])
    assert age.edges.tolist() == [-0.5, 0.5, 1.5, 2.5, 3.5]
    assert age.shares(np.array([0.0, 0.4, 3.0, 9.0])).tolist() == [50.0, 0.0, 0.0, 25.0]
    pet = _Comparison(Column("pet", "string", "category", categories=("cat", "dog")), np.zeros(3), [np.ones(1)])
    assert (pet.categories, pet.n_others) == ([0, 1], 0)
    word = _Comparison(Column("word", "string", "category", categories=tuple("abcdefghij")), np.arange(7.0), [])
    assert (word.categories, word.n_others) == (list(range(7)), 3)
    assert word.shares(np.array([0.0, 0.0, 1.0, 8.0])).tolist() == [50.0, 25.0, 0.0, 0.0, 0.0, 0.0, 0.0, 25.0]


def test_typical_cell_and_share_when_valid_then_they_are_returned() -> None:
    assert tables.typical_cell(np.array([1.0, 2.0, np.nan]), Column("age", "double", "continuous")) == 1.5
    assert check_share("level", 0.9) == 0.9


def test_figures_when_made_then_they_have_titles_sizes_and_axis_values() -> None:
    figure, panels = canvas.panel_grid(5, "Five columns")
    assert (figure.get_suptitle(), len(panels)) == ("Five columns", 5)
    assert canvas.new_panel(4, 3, left=0.5, bottom=0.5).figure.get_figwidth() == pytest.approx(4)
    day = Column("visit", "date32[day]", "datetime", step=86_400_000_000)
    assert canvas.axis_values(np.array([0.0, 2.5]), day).tolist() == [0.0, 2.5]
    assert canvas.shorten("a_very_long_name_of_a_column") == "a_very_long_name_of_a…"
    assert canvas.shorten(3) == "3"


def test_svg_when_exported_then_its_label_is_escaped() -> None:
    svg = canvas.to_svg(canvas.new_panel(2, 1, left=0.3, bottom=0.3), "one", "Nothing <at all>")
    assert svg.startswith("<svg")
    assert 'aria-label="Nothing &lt;at all&gt;"' in svg
