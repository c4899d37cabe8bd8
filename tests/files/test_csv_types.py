"""Types of CSV columns: inferred from cells, and filled cells with the spelling of their column."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from mcflow.files.csv.cells import DateFormat, Spelling
from mcflow.files.tables import TableFile, read_table, write_table


def read(tmp_path: Path, text: str) -> TableFile:
    path = tmp_path / "in.csv"
    path.write_text(text, encoding="utf-8", newline="")
    return read_table(path)


def column(tmp_path: Path, *cells: str) -> pa.ChunkedArray:
    return read(tmp_path, "\n".join(["n;a", *(f"{k};{cell}" for k, cell in enumerate(cells))])).table.column("a")


def refill(tmp_path: Path, cells: list[str], values: object) -> list[str]:
    """Fill the missing cells of a column and return its written cells."""
    lines = "\n".join(["n;a", *(f"{k};{cell}" for k, cell in enumerate(cells))])
    source = read(tmp_path, lines)
    array = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
    write_table(tmp_path / "out.csv", source.table.set_column(1, "a", array), source)
    written = (tmp_path / "out.csv").read_text(encoding="utf-8").split("\n")
    return [line.split(";")[1] for line in written[1:]]


TYPES = {
    "whole numbers": (["1", "-2", "+3", "NA"], "int64", [1, -2, 3, None]),
    "numbers": (["1", "2.5", "?", "1e3"], "double", [1.0, 2.5, None, 1000.0]),
    "numbers with commas": (["1", "-2,5", "1,5e3", ""], "double", [1.0, -2.5, 1500.0, None]),
    "not a number in capitals": (["1.5", "NAN"], "double", [1.5, None]),
    "codes": (["007", "12"], "string", ["007", "12"]),
    "codes with fractions": (["007.5", "12.1"], "string", ["007.5", "12.1"]),
    "base sixteen": (["0x1F", "0x20"], "string", ["0x1F", "0x20"]),
    "thousands": (["1.234,5", "2"], "double", [1234.5, 2.0]),
    "thousands of whole numbers": (["1 234", "12"], "int64", [1234, 12]),
    "currency": (["$8,610.00", "$12.5", "NA"], "double", [8610.0, 12.5, None]),
    "currency after": (["12 €", "1.200 €"], "int64", [12, 1200]),
    "percent": (["48.0%", "5.5%"], "double", [48.0, 5.5]),
    "units": (["12 kg", "7 kg"], "int64", [12, 7]),
    "two units": (["12 kg", "7 lb"], "string", ["12 kg", "7 lb"]),
    "few units": (["101", "102", "103A"], "string", ["101", "102", "103A"]),
    "accounting": (["(1.50)", "2.25"], "double", [-1.5, 2.25]),
    "versions": (["1.2.3", "1.10.1"], "string", ["1.2.3", "1.10.1"]),
    "codes with a prefix": (["A12", "A13"], "string", ["A12", "A13"]),
    "more than 64 bits": (["99999999999999999999", "1"], "double", [1e20, 1.0]),
    "days without marks": (["20240229", "20240301"], "int64", [20240229, 20240301]),
    "truth": (["true", "", "false"], "bool", [True, None, False]),
    "truth in two spellings": (["true", "False"], "bool", [True, False]),
    "truth in many spellings": (["TRUE", "yes", "N", "0", "?"], "bool", [True, True, False, False, None]),
    "letters that are no truth": (["f", "m"], "string", ["f", "m"]),
    "truth by letters": (["yes", "no"], "string", ["yes", "no"]),
    "truth by digits": (["1", "0"], "int64", [1, 0]),
    "iso day": (["2024-02-29", "NA"], "date32[day]", [date(2024, 2, 29), None]),
    "iso day that is none": (["2024-02-29", "2023-02-29"], "string", ["2024-02-29", "2023-02-29"]),
    "iso month": (["2024-02", "2024-03"], "string", ["2024-02", "2024-03"]),
    "two formats": (["2024-02-29", "01.03.2024"], "string", ["2024-02-29", "01.03.2024"]),
    "slashes, year first": (["2024/02/29"], "date32[day]", [date(2024, 2, 29)]),
    "slashes, day first": (["01/02/2024", "29/02/2024"], "date32[day]", [date(2024, 2, 1), date(2024, 2, 29)]),
    "slashes, month first": (["01/02/2024", "02/29/2024"], "date32[day]", [date(2024, 1, 2), date(2024, 2, 29)]),
    "slashes, who knows": (["01/02/2024", "12/11/2024"], "string", ["01/02/2024", "12/11/2024"]),
    "slashes, both": (["13/02/2024", "02/13/2024"], "string", ["13/02/2024", "02/13/2024"]),
    "without zeros": (["1/2/2024", "2/29/2024"], "date32[day]", [date(2024, 1, 2), date(2024, 2, 29)]),
    "some zeros": (["01.2.2024", "1.02.2024"], "string", ["01.2.2024", "1.02.2024"]),
    "minutes": (["2024-02-29T10:30"], "timestamp[s]", [datetime(2024, 2, 29, 10, 30)]),
    "minutes and seconds": (
        ["2024-02-29T10:30", "2024-02-29T10:30:01"],
        "string",
        ["2024-02-29T10:30", "2024-02-29T10:30:01"],
    ),
    "fractions": (
        ["2024-02-29 10:30:01.25", "2024-02-29 10:30:02"],
        "timestamp[ms]",
        [datetime(2024, 2, 29, 10, 30, 1, 250000), datetime(2024, 2, 29, 10, 30, 2)],
    ),
    "microseconds": (["2024-02-29 10:30:01.000001"], "timestamp[us]", [datetime(2024, 2, 29, 10, 30, 1, 1)]),
    "offsets": (
        ["2024-02-29T10:30:00+02:00", "2024-02-29T10:30:00Z"],
        "timestamp[s, tz=UTC]",
        [datetime(2024, 2, 29, 8, 30, tzinfo=UTC), datetime(2024, 2, 29, 10, 30, tzinfo=UTC)],
    ),
    "some offsets": (
        ["2024-02-29T10:30:00+02:00", "2024-02-29T10:30:00"],
        "string",
        ["2024-02-29T10:30:00+02:00", "2024-02-29T10:30:00"],
    ),
    "points and a time": (["29.02.2024 10:30:05"], "timestamp[s]", [datetime(2024, 2, 29, 10, 30, 5)]),
    "no such hour": (["29.02.2024 24:30"], "string", ["29.02.2024 24:30"]),
    "nothing": (["", "NA"], "string", [None, None]),
}


@pytest.mark.parametrize("case", TYPES)
def test_type_is_the_one_that_all_observed_cells_have(tmp_path, case) -> None:
    cells, kind, values = TYPES[case]
    read = column(tmp_path, *cells)
    assert str(read.type) == kind
    assert read.to_pylist() == values


MOMENT = datetime(2001, 3, 4, 5, 6, 7, 891234)
FILLS = {
    "2024-02-29": "2001-03-04",
    "2024/02/29": "2001/03/04",
    "29.02.2024": "04.03.2001",
    "29.2.2024": "4.3.2001",
    "29/02/2024": "04/03/2001",
    "02/29/2024": "03/04/2001",
    "2/29/2024": "3/4/2001",
    "2024-02-29T10:30": "2001-03-04T05:06",
    "2024-02-29 10:30:00": "2001-03-04 05:06:07",
    "2024-02-29T10:30:00.5": "2001-03-04T05:06:07.8",
    "2024-02-29T10:30:00.123": "2001-03-04T05:06:07.891",
    "2024-02-29 10:30:00.123456789": "2001-03-04 05:06:07.891234000",
    "2024-02-29T10:30:00Z": "2001-03-04T05:06:07Z",
    "2024-02-29T10:30+00:00": "2001-03-04T05:06+00:00",
    "2024-02-29 10:30:00.25+02:00": "2001-03-04 07:06:07.89+02:00",
    "2024-02-29T10:30:00-05:30": "2001-03-03T23:36:07-05:30",
    "2024/02/29 10:30": "2001/03/04 05:06",
    "29.02.2024 10:30:00": "04.03.2001 05:06:07",
    "29/02/2024 10:30": "04/03/2001 05:06",
    "02/29/2024 10:30:00": "03/04/2001 05:06:07",
}


@pytest.mark.parametrize("unit", ["own", "us", "ns"])
@pytest.mark.parametrize("cell", FILLS)
def test_filled_time_has_the_format_of_its_column(tmp_path, cell, unit) -> None:
    kind = column(tmp_path, cell).type
    zone = getattr(kind, "tz", None)
    moment = pa.array([None, MOMENT], pa.timestamp("us", zone))
    values = moment.cast(kind if unit == "own" else pa.timestamp(unit, zone), safe=False)
    assert refill(tmp_path, [cell, "?"], values) == [cell, FILLS[cell]]


def test_filled_time_before_1970_is_cut_downwards(tmp_path) -> None:
    values = pa.array([None, datetime(1969, 12, 31, 23, 59, 59, 999999)])
    assert refill(tmp_path, ["2024-02-29 10:30:00.5", "?"], values)[1] == "1969-12-31 23:59:59.9"
    assert refill(tmp_path, ["29.02.2024", "?"], values)[1] == "31.12.1969"


def test_filled_time_takes_the_most_frequent_offset(tmp_path) -> None:
    cells = ["2024-01-01T00:00+01:00", "2024-07-01T00:00+02:00", "2024-08-01T00:00+02:00", "NA"]
    values = pa.array([None, None, None, datetime(2024, 6, 1, 12)], pa.timestamp("us", "UTC"))
    assert refill(tmp_path, cells, values)[3] == "2024-06-01T14:00+02:00"
    local = values.cast(pa.timestamp("us", "America/New_York"))
    assert refill(tmp_path, cells, local)[3] == "2024-06-01T14:00+02:00"


@pytest.mark.parametrize("words", [("true", "false"), ("True", "False"), ("TRUE", "FALSE")])
def test_filled_truth_has_the_spelling_of_its_column(tmp_path, words) -> None:
    assert refill(tmp_path, [words[0], "NA", ""], [None, False, True]) == [words[0], words[1], words[0]]


def test_filled_numbers_are_written_in_full_and_whole_ones_without_a_fraction(tmp_path) -> None:
    fills = [None, 2.0, 1e15, -0.0, 0.1, 1 / 3, 1e300, 5e-324, float("nan")]
    written = refill(tmp_path, ["5", *[""] * 7, "?"], fills)
    assert written[:6] == ["5", "2", "1000000000000000", "0", "0.1", "0.3333333333333333"]
    assert [float(cell) for cell in written[1:8]] == fills[1:8]
    assert written[8] == "?"


def test_filled_numbers_have_the_decimal_comma_of_the_file(tmp_path) -> None:
    source = read(tmp_path, "a;b;c\n1,5;1;\n;2;\n3;;\n")
    filled = pa.table({"a": [1.5, 2.25, 3.0], "b": [1.0, 2.0, 0.5], "c": [1.5, 2.0, None]})
    write_table(tmp_path / "out.csv", filled, source)
    assert (tmp_path / "out.csv").read_text() == "a;b;c\n1,5;1;1,5\n2,25;2;2\n3;0,5;\n"


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("a\tb\n1,234\t5\n", ["double", "int64"]),
        ("a\tb\n1,234\t0.5\n", ["int64", "double"]),
        ("a|b\n1,5\t|0.5\n", ["double", "double"]),
        ("a;b\n1,5;0.5\n", ["double", "double"]),
        ("a;b\n1,5;1.234\n", ["double", "int64"]),
        ("a;b;c\n1,5;0.5;0.25\n", ["double", "double", "double"]),
        ('a,b\n"1,5",2\n', ["double", "int64"]),
    ],
)
def test_mark_of_thousands_or_decimals_follows_the_column_and_else_the_file(tmp_path, text, types) -> None:
    assert [str(field.type) for field in read(tmp_path, text).table.schema] == types


def test_filled_text_comes_in_any_type(tmp_path) -> None:
    words = pa.array(["x", "new", None])
    for kind in (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())):
        assert refill(tmp_path, ["x", "NA", "?"], words.cast(kind)) == ["x", "new", "?"]


def test_values_without_a_source_are_written_plainly() -> None:
    write = Spelling().write
    times = pa.chunked_array([pa.array([datetime(2024, 1, 2, 3, 4, 5), None], pa.timestamp("ms"))])
    assert write(times).to_pylist() == ["2024-01-02 03:04:05", None]
    part = pa.chunked_array([pa.array([datetime(2024, 1, 2, 3, 4, 5, 1000)], pa.timestamp("ms", "Europe/Berlin"))])
    assert write(part).to_pylist() == ["2024-01-02 03:04:05.001Z"]
    assert write(pa.chunked_array([[date(2024, 1, 2)]])).to_pylist() == ["2024-01-02"]
    assert write(pa.chunked_array([[True, None]])).to_pylist() == ["True", None]
    assert write(pa.chunked_array([[[1, 2], None]])).to_pylist() == ["[1, 2]", None]
    assert write(pa.chunked_array([pa.array([1.25], pa.float32())])).to_pylist() == ["1.25"]
    assert write(pa.chunked_array([pa.array([1.5], pa.float64()).cast(pa.decimal128(5, 2))])).to_pylist() == ["1.50"]


def test_dates_survive_their_format() -> None:
    days = pa.chunked_array([pa.array([date(1, 1, 1), date(1969, 12, 31), date(2024, 2, 29), date(9999, 12, 31)])])
    for order, mark in [("ymd", "-"), ("ymd", "/"), ("dmy", "."), ("dmy", "/"), ("mdy", "/")]:
        for padded in [True, False] if order != "ymd" else [True]:
            form = DateFormat(order, mark, padded)
            assert pc.all(pc.equal(form.read(form.write(days)), days)).as_py()
