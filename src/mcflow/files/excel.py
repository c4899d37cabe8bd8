"""Excel workbooks: one sheet read as a table, and written back with only the filled cells changed."""

from __future__ import annotations

__all__ = ["ExcelSource", "read_excel", "write_excel"]

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from typing import Any
from zipfile import BadZipFile

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mcflow.columns.schema import MissingValues, warn_of_words, without_values
from mcflow.errors import DataError, MissingExtraError
from mcflow.files.csv.cells import Spelling, observed, read_as
from mcflow.files.csv.inference import ColumnEvidence
from mcflow.files.csv.reader import unique_names

_MIDNIGHT = time()


@dataclass(frozen=True)
class ExcelSource:
    """How a table lies in a workbook."""

    data: bytes = b""  # the workbook
    sheet: str = ""  # name of the sheet
    header: int = 1  # row of the header, counted from 1
    rows: tuple[int, ...] = ()  # row of each record
    names: tuple[str, ...] = ()  # names of the columns, from the first column of the sheet
    spellings: Mapping[str, Spelling] = field(default_factory=dict)  # of columns whose cells are text


def _openpyxl() -> Any:
    try:
        import openpyxl
    except ImportError as error:
        raise MissingExtraError("Excel files need openpyxl: pip install openpyxl (the extra 'excel')") from error
    return openpyxl


def read_excel(
    data: bytes, name: str, *, missing: MissingValues | None = None, skip_rows: int = 0
) -> tuple[pa.Table, ExcelSource]:
    """Read the active sheet of a workbook, with the values of its formulas; the header follows `skip_rows` rows."""
    try:
        book = _openpyxl().load_workbook(io.BytesIO(data), data_only=True)
    except (BadZipFile, KeyError, OSError, ValueError, TypeError, AttributeError, SyntaxError) as error:
        raise ValueError(f"it is no workbook ({error})") from error
    sheet = book.active
    if sheet is None or not hasattr(sheet, "iter_rows"):
        raise ValueError("its active sheet holds no cells")
    lines = [(k, list(row)) for k, row in enumerate(sheet.iter_rows(values_only=True), start=1) if k > skip_rows]
    lines = [(k, row) for k, row in lines if any(cell is not None for cell in row)]
    if not lines:
        raise DataError(f"{name} is empty. Give a file with a header line and rows.")
    header, records = lines[0][1], lines[1:]
    width = max(k + 1 for _, row in lines for k, cell in enumerate(row) if cell is not None)
    names = unique_names(["" if cell is None else str(cell) for cell in header[:width]], name)
    given = missing or MissingValues()
    given.check(names)
    read = [_column(c, [row[k] for _, row in records], given.of_column(c)) for k, c in enumerate(names)]
    spellings = {name: spelling for name, (_, spelling) in zip(names, read, strict=True) if spelling is not None}
    rows = tuple(k for k, _ in records)
    source = ExcelSource(data, sheet.title, lines[0][0], rows, names, spellings)
    return pa.table([cells for cells, _ in read], names=names), source


def _column(name: str, cells: Sequence[Any], missing: tuple[Any, ...]) -> tuple[pa.ChunkedArray, Spelling | None]:
    """Return the typed cells of a column, and their spelling if some are text."""
    kinds = {type(cell) for cell in cells if cell is not None}
    if kinds and kinds <= {datetime, date}:
        return _dates(cells, missing), None
    if kinds and (kinds <= {int, float} or kinds == {bool}):
        array = pa.array([float(cell) if float in kinds and cell is not None else cell for cell in cells])
        return pa.chunked_array([without_values(array, missing)]), None
    texts = pa.chunked_array([[None if cell is None else str(cell) for cell in cells]], pa.string())
    seen = observed(texts, missing)
    kind, spelling = (evidence := ColumnEvidence.of(seen, np.zeros(len(seen), bool), "\t")).infer(".")
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        evidence.shapes.warn_of_odd(name, spelling.number)
    typed = without_values(read_as(seen, kind, spelling), missing)
    if not pa.types.is_string(kind):
        warn_of_words(name, seen.filter(pc.and_(seen.is_valid(), typed.is_null())))
    return typed, spelling if kinds == {str} else None


def _dates(cells: Sequence[Any], missing: tuple[Any, ...]) -> pa.ChunkedArray:
    """Return dates if no cell has a time of day, else times."""
    moments = [datetime.combine(c, _MIDNIGHT) if c is not None and not isinstance(c, datetime) else c for c in cells]
    whole = all(cell is None or cell.time() == _MIDNIGHT for cell in moments)
    array = pa.array(moments, pa.timestamp("us"))
    return pa.chunked_array([without_values(array.cast(pa.date32()) if whole else array, missing)])


def write_excel(filled: pa.Table, table: pa.Table, source: ExcelSource) -> bytes:
    """Return a workbook: that of the source with its missing cells filled, or a new one."""
    if len(source.rows) != filled.num_rows:  # a table of another file, or of several draws
        source = ExcelSource(rows=tuple(range(2, filled.num_rows + 2)))
    book = _openpyxl().load_workbook(io.BytesIO(source.data)) if source.data else _openpyxl().Workbook()
    sheet, rows, place = book[source.sheet] if source.data else book.active, source.rows, len(source.names)
    for name in filled.column_names:
        known = name in source.names
        column = source.names.index(name) + 1 if known else (place := place + 1)
        if not known:
            sheet.cell(source.header, column, name)
        values = _plain_values(filled.column(name), source.spellings.get(name))
        empty = table.column(name).is_null(nan_is_null=True).to_pylist() if known else [True] * len(rows)
        for row, value, missing in zip(rows, values, empty, strict=True):
            if missing and value is not None:
                sheet.cell(row, column, value)
                _copy_format(sheet, rows, row, column)
    stream = io.BytesIO()
    book.save(stream)
    return stream.getvalue()


def _plain_values(column: pa.ChunkedArray, spelling: Spelling | None) -> Iterator[Any]:
    """Yield values that a workbook can hold."""
    for value in (column if spelling is None else spelling.write(column)).to_pylist():
        zoned = isinstance(value, datetime) and value.tzinfo is not None  # workbooks know no time zones
        if value is None or (isinstance(value, float) and math.isnan(value)):
            yield None
        else:
            yield value if isinstance(value, bool | int | float | str | date) and not zoned else str(value)


def _copy_format(sheet: Any, rows: Sequence[int], row: int, column: int) -> None:
    """Give a filled cell the number format of the nearest row that has one."""
    other = sheet.cell(rows[0] if row != rows[0] else rows[-1], column)
    cell = sheet.cell(row, column)
    if cell.number_format == "General" and other.number_format != "General":
        cell.number_format = other.number_format
