"""Tables derived from a file: stacked several times, numbered files, and companions of columns."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mcflow.errors import ParameterError
from mcflow.files.tables import TableFile, marked, read_table, repeated, with_companions, write_table


def read(folder: Path, data: bytes) -> TableFile:
    (folder / "in.csv").write_bytes(data)
    return read_table(folder / "in.csv")


def written(folder: Path, table: pa.Table, source: TableFile) -> bytes:
    write_table(folder / "out.csv", table, source)
    return (folder / "out.csv").read_bytes()


TEXTS = {
    "plain": (b"a,b\n1,x\n,y\n", b"a,b\n1,x\n7,y\n1,x\n7,y\n1,x\n7,y\n"),
    "no last line end": (b"a;b\r\n 1 ;x\r\nNA;y", b"a;b\r\n 1 ;x\r\n7;y\r\n 1 ;x\r\n7;y\r\n 1 ;x\r\n7;y"),
    "returns alone": (b"a,b\r1,x\r,y", b"a,b\r1,x\r7,y\r1,x\r7,y\r1,x\r7,y"),
    "line ends that differ": (b"a,b\r\n1,x\r\n,y\n", b"a,b\r\n1,x\r\n7,y\n1,x\r\n7,y\n1,x\r\n7,y\n"),
    "lines in quotes": (b'a,b\n1,"x\ny"\n,""\n', b'a,b\n1,"x\ny"\n7,""\n1,"x\ny"\n7,""\n1,"x\ny"\n7,""\n'),
    "empty lines": (b"\na,b\n\n1,x\n,y\n", b"\na,b\n\n1,x\n7,y\n1,x\n7,y\n1,x\n7,y\n"),
    "one column": (b"a\n1\n\n", b"a\n1\n7\n1\n7\n1\n7\n"),
    "byte-order mark": (b"\xef\xbb\xbfa,b\n1,x\n,y\n", b"\xef\xbb\xbfa,b\n1,x\n7,y\n1,x\n7,y\n1,x\n7,y\n"),
}


@pytest.mark.parametrize("case", TEXTS)
def test_repeated_source_is_written_with_unchanged_cells(tmp_path, case) -> None:
    before, after = TEXTS[case]
    source = repeated(read(tmp_path, before), 3)
    table = source.table.set_column(0, "a", source.table.column("a").fill_null(7))
    assert written(tmp_path, table, source) == after
    assert written(tmp_path, source.table, source) == after.replace(b"7", b"" if b"NA" not in before else b"NA")


def test_repeated_source_once_is_the_source(tmp_path) -> None:
    source = read(tmp_path, b"a,b\n1,x\n,y")
    once = repeated(source, 1)
    assert once.csv.layout.text == source.csv.layout.text
    assert (once.csv.layout.ends == source.csv.layout.ends).all()


def test_repeated_source_can_change_its_separator_and_format(tmp_path) -> None:
    source = repeated(read(tmp_path, b"a,b\n1,x\n,y"), 2)
    write_table(tmp_path / "out.tsv", source.table, source)
    assert (tmp_path / "out.tsv").read_bytes() == b"a\tb\n1\tx\n\ty\n1\tx\n\ty"
    write_table(tmp_path / "out.parquet", source.table, source)
    assert pq.read_table(tmp_path / "out.parquet").to_pydict() == {"a": [1, None, 1, None], "b": ["x", "y"] * 2}


def test_repeated_parquet_keeps_dictionaries(tmp_path) -> None:
    kind = pa.dictionary(pa.int8(), pa.string(), ordered=True)
    table = pa.table({"g": pa.DictionaryArray.from_arrays(pa.array([1, None], pa.int8()), ["u", "v"], ordered=True)})
    source = repeated(TableFile(table, ending=".parquet"), 2)
    write_table(tmp_path / "out.pq", source.table, source)
    found = pq.read_table(tmp_path / "out.pq")
    assert found.schema.field("g").type == kind
    assert found.column("g").to_pylist() == ["v", None, "v", None]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a.csv", "a.12.csv"), ("x/a.b.TSV.Zst", "x/a.b.12.TSV.Zst"), ("a.csv.pq", "a.csv.12.pq")],
)
def test_number_stands_before_the_ending(name, expected) -> None:
    assert marked(Path(name), 12) == Path(expected)
    with pytest.raises(ParameterError, match="has to end in one of"):
        marked(Path(name + ".txt"), 1)


def test_companions_are_written_like_their_columns(tmp_path) -> None:
    source = read(tmp_path, b'day;"x"\n31.01.2024;"1,5"\n;"2,5"\n')
    companions = with_companions(source, {"day.low": "day", "x.low": "x"})
    day, x = source.table.column("day"), source.table.column("x")
    table = source.table.append_column("day.low", day).append_column("x.low", x)
    lines = written(tmp_path, table, companions).decode().split("\n")
    assert lines[1:3] == ['31.01.2024;"1,5";31.01.2024;"1,5"', ';"2,5";;"2,5"']


def test_companions_in_parquet_have_the_type_of_their_column(tmp_path) -> None:
    source = TableFile(pa.table({"n": pa.array([1, None], pa.int16())}), ending=".parquet")
    table = source.table.append_column("n.low", pa.chunked_array([[None, 3.0]]))
    write_table(tmp_path / "out.pq", table, with_companions(source, {"n.low": "n"}))
    assert str(pq.read_schema(tmp_path / "out.pq").field("n.low").type) == "int16"
