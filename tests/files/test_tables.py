"""Table files: types, compression, standard streams, and observed cells that stay unchanged."""

from __future__ import annotations

import csv
import gzip
import io
import sys
import tempfile
from datetime import date
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcflow.columns.schema import MISSING_MARKS
from mcflow.errors import DataError, OutputError, ParameterError
from mcflow.files.tables import FORMATS, TableFile, as_fitted, format_of, read_table, write_table


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
    assert written[0] == ["number", "text"]
    assert len(written) == len(rows) + 1
    for (n, t), missing, (cell, text) in zip(rows, number.is_null().to_pylist(), written[1:], strict=True):
        assert text == t
        # A fill has the column's number of decimals, such as 7.50.
        assert float(cell) == 7.5 if missing else cell == n


TEXT = 'a;"b c"\r\n1,5;x\r\n;y\r\n'
FILLED = 'a;"b c"\r\n1,5;x\r\n2,25;y\r\n'


def pack(data: bytes, ending: str) -> bytes:
    if ending.endswith(".gz"):
        return gzip.compress(data)
    if not ending.endswith(".zst"):
        return data
    sink = pa.BufferOutputStream()
    with pa.output_stream(sink, compression="zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue())


def unpack(path: Path) -> bytes:
    if path.name.endswith(".gz"):
        return gzip.decompress(path.read_bytes())
    with pa.input_stream(path, compression="zstd" if path.name.endswith(".zst") else None) as stream:
        return bytes(stream.read())


def fill(source: TableFile, value: float = 2.25) -> pa.Table:
    return source.table.set_column(0, "a", source.table.column("a").fill_null(value))


@pytest.mark.parametrize("ending", [ending for ending, kind in FORMATS.items() if kind == "csv"])
def test_compression_follows_the_ending(tmp_path, ending) -> None:
    path, output = tmp_path / f"in.x{ending}", tmp_path / f"OUT{ending.upper()}"
    text, filled = (t.replace(";", "\t") if "tsv" in ending else t for t in (TEXT, FILLED))
    path.write_bytes(pack(text.encode(), ending))
    source = read_table(path)
    write_table(output, fill(source), source)
    assert unpack(output.rename(tmp_path / f"out{ending}")) == filled.encode()
    first = (tmp_path / f"out{ending}").read_bytes()
    write_table(output, fill(source), source)
    assert output.read_bytes() == first


@pytest.mark.parametrize("ending", [".csv.gz", ".csv.zst"])
@pytest.mark.parametrize("damage", ["not compressed", "cut"])
def test_damaged_compression_is_refused(tmp_path, ending, damage) -> None:
    path = tmp_path / f"in{ending}"
    path.write_bytes(TEXT.encode() if damage == "not compressed" else pack(TEXT.encode() * 1000, ending)[:30])
    with pytest.raises(DataError, match="cannot be read as csv: it cannot be decompressed"):
        read_table(path)


def test_endings_say_the_format() -> None:
    assert format_of(Path("-")) == format_of(Path("a.b.TSV.zst")) == "csv"
    assert format_of(Path("a.csv.parquet")) == "parquet"
    for name, hint in {"a.cvs": "'.csv'", "a.csv.gzz": "'.csv.gz'", "a.parqet": "'.parquet'"}.items():
        with pytest.raises(ParameterError, match=f"Did you mean {hint}"):
            format_of(Path(name))
    for name in ("a", "a.gz", "a.parquet.gz", ".csv", "a.xls"):
        with pytest.raises(ParameterError, match=r"has to end in one of \.csv, \.csv\.gz"):
            format_of(Path(name))
    with pytest.raises(FileNotFoundError, match=r"There is no file no\.csv\."):
        read_table(Path("no.csv"))


@pytest.mark.parametrize(
    ("text", "source", "output", "expected"),
    [
        ("a,b\n1,x;y\n,\n", "in.csv", "out.tsv", "a\tb\n1\tx;y\n2\t\n"),
        ("a\tb\n1\tx,y\n\tz\n", "in.tsv", "out.csv", 'a,b\n1,"x,y"\n2,z\n'),
        ("a\tb\n1,5\tx,y\n\tz\n", "in.tsv.gz", "out.csv", "a;b\n1,5;x,y\n2,0;z\n"),
        ("a\tb\n1\tx,y\n\tz\n", "in.csv", "out.csv", "a\tb\n1\tx,y\n2\tz\n"),
        ("a,b\n1,x\n,z\n", "in.tsv", "out.tsv", "a,b\n1,x\n2,z\n"),
    ],
)
def test_separator_changes_only_with_the_ending(tmp_path, text, source, output, expected) -> None:
    (tmp_path / source).write_bytes(pack(text.encode(), source))
    read = read_table(tmp_path / source)
    write_table(tmp_path / output, fill(read, 2), read)
    assert (tmp_path / output).read_text() == expected


def streams(monkeypatch: pytest.MonkeyPatch, given: bytes) -> io.BytesIO:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(given)))
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=written))
    return written


def test_standard_input_and_output_carry_csv(monkeypatch) -> None:
    written = streams(monkeypatch, TEXT.encode("utf-16"))
    source = read_table(Path("-"))
    write_table(Path("-"), fill(source), source)
    assert written.getvalue() == FILLED.encode("utf-16")


def test_standard_input_and_output_carry_parquet(monkeypatch) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": [1.0, None]}), sink)
    written = streams(monkeypatch, bytes(sink.getvalue()))
    source = read_table(Path("-"))
    write_table(Path("-"), fill(source), source)
    assert pq.read_table(pa.BufferReader(written.getvalue())).to_pydict() == {"a": [1.0, 2.25]}


def test_standard_output_gets_plain_text_from_compressed_files_and_csv_from_tables(tmp_path, monkeypatch) -> None:
    (tmp_path / "in.csv.gz").write_bytes(gzip.compress(TEXT.encode()))
    source = read_table(tmp_path / "in.csv.gz")
    written = streams(monkeypatch, b"")
    write_table(Path("-"), fill(source), source)
    write_table(Path("-"), pa.table({"a": [1.5]}), TableFile(pa.table({"a": [1.5]})))
    assert written.getvalue() == FILLED.encode() + b"a\n1.5\n"


def test_standard_input_and_closed_output_are_named_in_errors(monkeypatch) -> None:
    streams(monkeypatch, b"a,b\n1\n")
    with pytest.raises(DataError, match=r"^standard input cannot be read as csv: line 2 has 1 cell"):
        read_table(Path("-"))

    def fail(_: bytes) -> None:
        raise errors.pop()

    errors: list[OSError] = [BrokenPipeError(32, "Broken pipe"), OSError(28, "No space left on device")]
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=SimpleNamespace(write=fail, flush=None)))
    table = pa.table({"a": [1]})
    with pytest.raises(OutputError, match="Standard output cannot be written: No space left"):
        write_table(Path("-"), table, TableFile(table))
    write_table(Path("-"), table, TableFile(table))  # a reader that ends early is no error
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(OutputError, match="Standard output is closed"):
        write_table(Path("-"), table, TableFile(table))


def test_texts_alone_are_enough_to_keep_cells(tmp_path) -> None:
    source = TableFile(pa.table({"a": [1.5, None]}), pa.table({"a": ["1.50", "?"]}))
    write_table(tmp_path / "out.csv", fill(source), source)
    assert (tmp_path / "out.csv").read_text() == "a\n1.50\n2.25\n"


def test_parquet_is_written_as_csv_with_missing_cells_that_readers_see(tmp_path) -> None:
    table = pa.table({"a": [1.5, None], "b": ["x,y", None], "d": [None, date(2024, 1, 2)]})
    write_table(tmp_path / "out.csv", table, TableFile(table))
    assert (tmp_path / "out.csv").read_text() == 'a,b,d\n1.5,"x,y",\n,,2024-01-02\n'
    write_table(tmp_path / "out.csv", table.select(["a"]), TableFile(table))
    assert (tmp_path / "out.csv").read_text() == 'a\n1.5\n""\n'


def test_character_that_the_encoding_lacks_is_an_error_and_nothing_is_written(tmp_path) -> None:
    (tmp_path / "in.csv").write_bytes("a,b\n1,ä\n2,\n".encode("cp1252"))
    source = read_table(tmp_path / "in.csv")
    filled = source.table.set_column(1, "b", pa.array(["ä", "λ"]))
    with pytest.raises(OutputError, match="as cp1252, which lacks 'λ'"):
        write_table(tmp_path / "out.csv", filled, source)
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


def test_table_of_other_rows_is_refused(tmp_path) -> None:
    with pytest.raises(DataError, match="has 1 rows, and its source has 2"):
        write_table(tmp_path / "out.csv", pa.table({"a": [1]}), TableFile(pa.table({"a": [1, 2]})))


@pytest.mark.parametrize("codec", ["snappy", "gzip", "zstd", "brotli", "lz4", "none"])
def test_parquet_keeps_compression_and_row_groups(tmp_path, codec) -> None:
    pq.write_table(pa.table({"a": [1.0, None] * 50}), tmp_path / "in.parquet", compression=codec, row_group_size=30)
    source = read_table(tmp_path / "in.parquet")
    write_table(tmp_path / "out.pq", fill(source), source)
    before, after = (pq.ParquetFile(tmp_path / name).metadata for name in ("in.parquet", "out.pq"))
    assert after.row_group(0).column(0).compression == before.row_group(0).column(0).compression
    assert [after.row_group(k).num_rows for k in range(4)] == [30, 30, 30, 10]


def test_parquet_keeps_the_types_that_can_hold_what_was_filled(tmp_path) -> None:
    words = pa.DictionaryArray.from_arrays(pa.array([1, None, 0], pa.int8()), ["low", "high", "never"], ordered=True)
    table = pa.table(
        {
            "small": pa.array([1, None, 3], pa.int16()),
            "whole": pa.array([1, None, 3]),
            "single": pa.array([1, None, 3], pa.float32()),
            "words": words,
            "day": pa.array([date(2024, 1, 2), None, None]),
            "empty": pa.nulls(3),
            "gone": [1, 2, 3],
        }
    )
    pq.write_table(table, tmp_path / "in.parquet")
    source = read_table(tmp_path / "in.parquet")
    filled = pa.table(
        {
            "small": [1.0, 2.0, 3.0],
            "whole": [1.0, 2.5, 3.0],
            "single": [1.0, 2.0, 3.0],
            "words": pa.array(["high", "new", "low"], pa.large_string()),
            "day": pa.array([0, 86400, 0], pa.timestamp("s")),
            "empty": [0.5, 0.5, 0.5],
            "added": ["x", "y", "z"],
        }
    )
    write_table(tmp_path / "out.parquet", filled, source)
    back = pq.read_table(tmp_path / "out.parquet")
    kinds = [table.schema.field(name).type for name in ("small", "single", "words", "day")]
    assert [back.schema.field(name).type for name in ("small", "single", "words", "day")] == kinds
    assert back.column("words").combine_chunks().dictionary.to_pylist()[:3] == ["low", "high", "never"]
    assert back.column("words").to_pylist() == ["high", "new", "low"]
    assert [str(back.schema.field(name).type) for name in ("whole", "empty", "added")] == ["double", "double", "string"]


def test_parquet_of_pandas_comes_back_with_index_and_categories(tmp_path) -> None:
    frame = pd.DataFrame(
        {"a": [1.0, None], "c": pd.Categorical(["x", None], ["z", "x"], ordered=True)}, index=pd.Index([7, 9], name="i")
    )
    frame.to_parquet(tmp_path / "in.parquet")
    source = read_table(tmp_path / "in.parquet")
    table = fill(source).set_column(1, "c", pa.array(["x", "z"]))
    write_table(tmp_path / "out.parquet", table, source)
    expected = frame.assign(a=[1.0, 2.25], c=pd.Categorical(["x", "z"], ["z", "x"], ordered=True))
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "out.parquet"), expected)


def test_damaged_parquet_is_refused(tmp_path) -> None:
    pq.write_table(pa.table({"a": list(range(1000))}), tmp_path / "in.parquet")
    data = (tmp_path / "in.parquet").read_bytes()
    for broken in (b"", data[:100], data[:40] + bytes(200) + data[240:]):
        (tmp_path / "in.parquet").write_bytes(broken)
        with pytest.raises(DataError, match="cannot be read as parquet"):
            read_table(tmp_path / "in.parquet")


def test_new_rows_get_the_types_of_the_fit(tmp_path) -> None:
    source = read(tmp_path, "real,code,word,day,none\n1,7, 12 ,2024-01-02,\n2,,13,NA,\n")
    known = {"real": "double", "code": "int64", "word": "string", "day": "string", "none": "string", "other": "string"}
    schema = SimpleNamespace(columns=[SimpleNamespace(name=name, dtype=dtype) for name, dtype in known.items()])
    table = as_fitted(source, schema).table
    assert [str(field.type) for field in table.schema] == ["double", "int64", "string", "string", "string"]
    assert table.column("word").to_pylist() == ["12", "13"]
    assert table.column("day").to_pylist() == ["2024-01-02", None]
    assert as_fitted(TableFile(source.table), schema).table is source.table
