"""CSV cells: read as what they are, written as they stood."""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcflow.data.tables import MISSING_MARKS, read_table, write_table


def read(tmp_path: Path, text: str):
    path = tmp_path / "in.csv"
    path.write_text(text, encoding="utf-8")
    return read_table(path)


@pytest.mark.parametrize("mark", sorted(MISSING_MARKS - {""}))
def test_marks_of_missing_cells_are_null_in_columns_of_numbers(tmp_path, mark) -> None:
    table = read(tmp_path, f"a,b\n1,x\n{mark},y\n 2 ,z\n").table
    assert table.column("a").to_pylist() == [1, None, 2]


def test_types_follow_the_cells(tmp_path) -> None:
    text = "whole,real,zip,huge,mixed,empty\n1,1.5,00123,99999999999999999999,1,\n-2,2e3,04567,1,x,\n"
    schema = read(tmp_path, text).table.schema
    assert [str(field.type) for field in schema] == ["int64", "double", "string", "double", "string", "string"]


def test_byte_order_mark_and_line_breaks_in_cells_are_read(tmp_path) -> None:
    source = read(tmp_path, '\ufeffa,b\r\n1,"two\nlines"\r\n,z\r\n')
    assert source.table.column_names == ["a", "b"]
    assert source.table.column("b").to_pylist() == ["two\nlines", "z"]


def test_empty_lines_of_a_one_column_file_are_missing_cells(tmp_path) -> None:
    assert read(tmp_path, "a\n1\n\n3\n").table.column("a").to_pylist() == [1, None, 3]


@given(
    rows=st.lists(
        st.tuples(
            st.one_of(st.floats(allow_nan=False, allow_infinity=False).map(repr), st.sampled_from(["", "NA", "?"])),
            st.text(st.characters(codec="utf-8", exclude_characters="\r\x00", exclude_categories=["Cs"])),
        ),
        min_size=1,
    )
)
def test_written_file_equals_the_read_one_where_nothing_was_missing(rows) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, output = Path(folder) / "in.csv", Path(folder) / "out.csv"
        with path.open("w", newline="", encoding="utf-8") as handle:
            csv.writer(handle, lineterminator="\n").writerows([("number", "text"), *rows])
        source = read_table(path)
        number = source.table.column("number")
        filled = number.cast(pa.float64()).fill_null(7.5)
        write_table(output, source.table.set_column(0, "number", filled), source)
        with output.open(newline="", encoding="utf-8") as handle:
            written = list(csv.reader(handle))
    missing = number.is_null().to_pylist()
    expected = [["7.5" if hole else n, t] for (n, t), hole in zip(rows, missing, strict=True)]
    assert written == [["number", "text"], *expected]
