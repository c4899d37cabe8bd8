"""Messy files: kinds and missing cells are found, spelling is kept, and fills have the form of their column."""

from __future__ import annotations

import csv
import io
import re
import sys
import warnings
from pathlib import Path

import pytest

from mcflow import MCFlowImputer
from mcflow.cli.options import ReadOptions
from mcflow.files.tables import write_table

sys.path.insert(0, str(Path(__file__).parent))
from messy import MessyFile, N, messy_files

FILES = {file.name: file for file in messy_files()}


def cells_of(path: Path, file: MessyFile) -> list[list[str]]:
    """Return the cells below the header, as they are written."""
    skip = len(file.titles) + 1
    if path.suffix == ".xlsx":
        import openpyxl

        rows = openpyxl.load_workbook(path).active.iter_rows(values_only=True)
        return [["" if cell is None else str(cell) for cell in row] for row in rows][skip:]
    text = path.read_bytes().decode(file.encoding)
    return list(csv.reader(io.StringIO(text, newline=""), delimiter=file.separator))[skip:]


def test_there_are_at_least_thirty_files() -> None:
    assert len(FILES) >= 30


@pytest.mark.parametrize("name", FILES)
def test_messy_file_when_filled_keeps_all_but_its_missing_cells(tmp_path, name) -> None:
    file, source, output = FILES[name], tmp_path / name, tmp_path / f"out.{name}"
    source.write_bytes(file.content())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table = ReadOptions(na=file.na, skip_rows=len(file.titles)).read(source)
        imputer = MCFlowImputer(
            max_epochs=1, calibrate=False, random_state=0, decimals="observed", missing_values=table.missing
        )
        write_table(output, imputer.fit_transform(table.table), table)
    said = [str(warning.message) for warning in caught]
    for pattern in file.warns:
        assert any(re.search(pattern, message) for message in said), said
    assert len(said) == len(file.warns), said
    assert {column.name: column.kind for column in imputer.schema_.columns} == {
        name: column.kind for name, column in file.columns.items()
    }
    before, after = cells_of(source, file), cells_of(output, file)
    assert len(before) == len(after) == N
    for place, column in enumerate(file.columns.values()):
        assert [k for k, null in enumerate(table.table.column(place).is_null().to_pylist()) if null] == list(
            column.missing
        )
        for row in range(N):
            if row in column.missing:
                assert re.fullmatch(column.form, after[row][place]), (name, row, place, after[row][place])
            else:
                assert after[row][place] == before[row][place]


def test_lines_above_the_header_are_kept(tmp_path) -> None:
    file = FILES["titles.csv"]
    (tmp_path / "a.csv").write_bytes(file.content())
    table = ReadOptions(skip_rows=3).read(tmp_path / "a.csv")
    write_table(tmp_path / "b.csv", table.table, table)
    assert (tmp_path / "b.csv").read_bytes() == file.content()
