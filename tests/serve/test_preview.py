"""Preview of filled cells: written to files and read a few rows at a time."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mcflow.serve.preview import next_filled, read_rows, write_bounds, write_texts

BEFORE = "name,x,y.low\na,,1\nb,2.50,\n,3,\n"
AFTER = "name,x,y.low\na,2.2,1\nb,2.50,7\n,3,8\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "upload.csv").write_text(BEFORE)
    (tmp_path / "filled.csv").write_text(AFTER)
    (tmp_path / "schema.json").write_text(json.dumps({"columns": [{"name": n} for n in ("name", "x", "y.low")]}))
    write_texts(tmp_path / "upload.csv", tmp_path / "filled.csv", tmp_path / "texts.parquet")
    return tmp_path


def test_rows_show_cells_as_the_file_has_them_and_which_were_filled(folder) -> None:
    found = read_rows(folder, 0, 100, range(3))
    assert found["cells"] == [["a", "2.2", "1"], ["b", "2.50", "7"], [None, "3", "8"]]
    assert found["filled"] == [[0, 1, None, None], [1, 2, None, None], [2, 2, None, None]]


def test_rows_are_cut_by_row_and_column(folder) -> None:
    found = read_rows(folder, 1, 1, range(2, 9))
    assert (found["start"], found["column"]) == (1, 2)
    assert found["cells"] == [["7"]]
    assert found["filled"] == [[1, 2, None, None]]
    assert read_rows(folder, 99, 5, range(3))["cells"] == []
    assert read_rows(folder, 0, 5, range(50, 60))["cells"] == []


def test_intervals_stand_beside_their_cells_also_where_names_have_dots(folder) -> None:
    cells = {
        "name": ["a", "b", None],
        "x": [2.2, 2.5, 3.0],
        "y.low": [1, 7, 8],
        "x.low": [1.23456789, None, None],
        "x.high": [3.0, None, None],
        "y.low.low": [None, 5, 6],
        "y.low.high": [None, 9, 10],
    }
    pq.write_table(pa.table(cells), folder / "cells.parquet")
    write_bounds(folder / "upload.csv", folder / "cells.parquet", folder / "bounds.parquet")
    assert read_rows(folder, 0, 100, range(3))["filled"] == [
        [0, 1, "1.23457", "3"],
        [1, 2, "5", "9"],
        [2, 2, "6", "10"],
    ]


def test_next_filled_goes_in_the_order_of_reading(folder) -> None:
    found, place = [], (-1, -1)
    while (cell := next_filled(folder, *place)) is not None:
        place = cell["row"], cell["column"]
        found.append(place)
    assert found == [(0, 1), (1, 2), (2, 2)]


def test_table_of_many_rows_is_read_by_groups(tmp_path) -> None:
    rows = 120_000
    values = np.arange(rows, dtype=float)
    missing = values % 1000 == 5
    pq.write_table(pa.table({"a": pa.array(values, mask=missing), "b": values}), tmp_path / "upload.parquet")
    pq.write_table(pa.table({"a": values, "b": values}), tmp_path / "filled.parquet")
    write_texts(tmp_path / "upload.parquet", tmp_path / "filled.parquet", tmp_path / "texts.parquet")
    assert 100 <= pq.read_metadata(tmp_path / "texts.parquet").num_row_groups <= 200
    found = read_rows(tmp_path, 99_950, 100, range(2))
    assert [float(row[0]) for row in found["cells"]] == list(range(99_950, 100_050))
    assert found["filled"] == [[100_005, 0, None, None]]
    assert next_filled(tmp_path, 118_006, 0) == {"row": 119_005, "column": 0}


def test_types_that_arrow_cannot_write_as_text_are_shown(tmp_path) -> None:
    table = pa.table({"a": [[1, 2], None], "b": pa.array(["x", "y"]).dictionary_encode(), "c": [None, 1.5]})
    pq.write_table(table, tmp_path / "upload.parquet")
    pq.write_table(table.set_column(2, "c", [[2.5, 1.5]]), tmp_path / "filled.parquet")
    write_texts(tmp_path / "upload.parquet", tmp_path / "filled.parquet", tmp_path / "texts.parquet")
    found = read_rows(tmp_path, 0, 10, range(3))
    assert found["cells"] == [["[1, 2]", "x", "2.5"], [None, "y", "1.5"]]
