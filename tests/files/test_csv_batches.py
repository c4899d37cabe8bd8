"""CSV files in batches and parts: cut anywhere, they give the same types and bytes as the whole file."""

from __future__ import annotations

import gzip
import tempfile
import warnings
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mcflow.errors import DataError
from mcflow.files.csv.reader import CsvProfile, profile_csv, read_csv
from mcflow.files.csv.writer import write_csv
from mcflow.files.partitioned import common_types, csv_parts, open_table, read_records, write_records
from mcflow.files.streams import open_compressed

FILL = {"int64": 7, "double": -0.25, "bool": True, "string": 'n,e;w "x"'}


def complete(table: pa.Table) -> pa.Table:
    """Fill every missing cell with a value of the type of its column."""
    columns = []
    for column in table.columns:
        value = pa.scalar(FILL.get(str(column.type), datetime(2001, 3, 4, 5, 6, 7)))
        columns.append(pc.if_else(column.is_null(), value.cast(column.type, safe=False), column))
    return pa.table(columns, names=table.column_names)


def in_parts(path: Path, out: Path, batch_rows: int, part_rows: int, block_bytes: int) -> tuple[CsvProfile, bytes]:
    """Fill a file in parts and join what is written, with the header once."""
    profile = profile_csv(path, batch_rows=batch_rows, block_bytes=block_bytes)
    assert CsvProfile.from_dict(path, profile.to_dict()) == profile
    parts = csv_parts(path.parent, common_types([profile]), part_rows)
    joined = b""
    for part in parts:
        file = out / part.output
        write_records([file], part, ((read, [complete(read.table)]) for read in read_records(part)))
        written = file.read_bytes()
        joined += written[len(head(profile)) :] if joined else written
    return profile, joined


def head(profile: CsvProfile) -> bytes:
    read = profile.reader.read(b"")
    return write_csv(read.table, read.table, read.texts, read.source)


def compare(data: bytes, batch_rows: int, part_rows: int, block_bytes: int) -> None:
    """Compare a file in parts with the whole file; both may be invalid."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of repeated names and odd cells
        path = Path(folder) / "rows.csv"
        path.write_bytes(data)
        try:
            whole = read_csv(data, str(path))
        except ValueError:  # of several errors, another one may be found first
            with pytest.raises(DataError):
                profile_csv(path, batch_rows=batch_rows, block_bytes=block_bytes)
            return
        wanted = write_csv(complete(whole.table), whole.table, whole.texts, whole.source)
        profile, found = in_parts(path, Path(folder) / "out", batch_rows, part_rows, block_bytes)
        source = profile.reader.source
        assert list(profile.reader.types) == whole.table.schema.types
        assert source.spellings == whole.source.spellings
        assert source.quoted == whole.source.quoted
        assert source.dialect == whole.source.dialect
        assert sum(batch.n_rows for batch in profile.batches) == whole.table.num_rows
        assert found == wanted


sizes = st.tuples(st.integers(1, 4), st.integers(1, 6), st.integers(1, 12))
cells = st.one_of(
    st.sampled_from(["", "NA", "?", "1", "2", "-3", "0.5", "1,5", "+4", "007", "1e3", "TRUE", "FALSE", "true", "NAN"]),
    st.sampled_from(["2024-02-29", "2024-02-30", "01/02/2024", "13/02/2024", "1.2.2024", "01.02.2024", "2.10.2024"]),
    st.sampled_from(["2024-02-29T10:30Z", "2024-02-29T10:30+02:00", "2024-02-29 10:30:01.25", "2024-02-29 10:30:01"]),
    st.text("ab\", ;\n\r'ä€", max_size=6),
)


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """Write columns that are mostly of one kind, with quotes, line breaks and empty lines."""
    separator = draw(st.sampled_from(",;\t|"))
    newline = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    width = draw(st.integers(1, 3))
    pools = [draw(st.lists(cells, min_size=1, max_size=3)) for _ in range(width)]
    quoted = [draw(st.booleans()) for _ in range(width)]
    lines = [separator.join(f'"c{k}"' if draw(st.booleans()) else f"c{k}" for k in range(width))]
    for _ in range(draw(st.integers(0, 9))):
        row = [draw(st.sampled_from(pool)) for pool in pools]
        lines.append(separator.join(_cell(text, flag, separator) for text, flag in zip(row, quoted, strict=True)))
        lines += [""] * draw(st.sampled_from([0, 0, 0, 1, 2]))
    text = newline * draw(st.sampled_from([0, 0, 2])) + newline.join(lines) + newline * draw(st.integers(0, 2))
    encoding = draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "cp1252"]))
    return text.encode(encoding)


def _cell(text: str, quoted: bool, separator: str) -> str:
    if quoted or any(letter in text for letter in separator + '"\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text


@given(files(), sizes)
@example(b'a;b\r\n"1\n\n2";3\r\n\r\n;"x""y"', (1, 1, 1))
@example('a\n\n"ä"\n\n'.encode(), (1, 2, 3))
@example(b"t\n1500-01-01 10:30:01\n2024-01-01 10:30:01.123456789\n", (1, 1, 9))
def test_file_in_pieces_equals_the_whole_file(data: bytes, cut: tuple[int, int, int]) -> None:
    compare(data, *cut)


@given(st.text('ab,"\n\r 1;', max_size=40).map(str.encode), sizes)
@example(b'a,b\n5" pipe,"x\ny"\n1,2', (1, 1, 2))
@example(b'a,b\n"1"x,2\n"3,4\n5,6\n', (1, 1, 1))
def test_random_text_in_pieces_equals_the_whole_text(data: bytes, cut: tuple[int, int, int]) -> None:
    compare(data, *cut)


def test_types_are_those_of_all_cells_and_the_same_in_every_batch(tmp_path) -> None:
    rows = "".join(f"{k},{k},2024-01-01,{k}\n" for k in range(50)) + "0.5,x,2024-01-01 10:00,\n"
    (tmp_path / "a.csv").write_text("n,w,d,i\n" + rows)
    table = open_table(tmp_path / "a.csv", part_rows=20)
    assert [str(kind) for kind in table.schema.types] == ["double", "string", "string", "int64"]
    assert [batch.schema for _, batch in table.rows()] == [table.schema] * 3
    assert [first for first, _ in table.rows()] == [0, 20, 40]


def test_files_with_other_types_share_the_wider_ones_for_a_fit(tmp_path) -> None:
    (tmp_path / "a.csv").write_text("n,w,e\n1,2,\n2,3,\n")
    (tmp_path / "b.csv").write_text("n;w;e\n1,5;x;2024-01-01\n")
    table = open_table(tmp_path)
    assert [str(kind) for kind in table.schema.types] == ["double", "string", "date32[day]"]
    assert [batch.to_pylist()[0]["n"] for _, batch in table.rows()] == [1.0, 1.5]


@pytest.mark.parametrize("ending", [".csv.gz", ".csv.zst"])
def test_compressed_file_is_one_part_and_is_written_compressed(tmp_path, ending) -> None:
    path = tmp_path / f"rows{ending}"
    with open_compressed(path, ending) as file:
        file.write(b"a,b\n" + b"1,x\n,y\n" * 30)
    profile = profile_csv(path, batch_rows=7)
    (part,) = csv_parts(tmp_path, common_types([profile]), 7)
    out = tmp_path / "out" / part.output
    write_records([out], part, ((read, [complete(read.table)]) for read in read_records(part)))
    assert (len(part.batches), part.output) == (9, f"rows{ending}")
    if ending == ".csv.gz":
        assert gzip.decompress(out.read_bytes()) == b"a,b\n" + b"1,x\n7,y\n" * 30
    again = profile_csv(out, batch_rows=100).reader
    assert [str(kind) for kind in again.types] == ["int64", "string"]


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.csv", b"a,b\n" + b"1,2\n" * 25 + b"3\n", "line 27 has 1 cell, and the first line has 2"),
        ("a.csv", b'a,b\n"x\ny",2\n' + b"1,2\n" * 25 + b'3,"4\n', "the quote that opens in line 29 is never closed"),
        ("a.csv", b"a,b\n1,\0\n", "zero bytes"),
        ("a.csv", b" \n\n", "is empty"),
        ("a.csv.gz", b"a,b\n", "cannot be decompressed"),
        ("a.csv.gz", gzip.compress(b"a,b\n" * 100, mtime=0)[:-9], "cannot be decompressed"),
        ("a.csv.zst", b"a,b\n", "cannot be decompressed"),
        ("a.csv", "a,b\n1,2".encode("utf-16")[:-1], "cannot be read as csv"),
    ],
)
def test_damaged_file_is_refused_with_the_line(tmp_path, name, data, words) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=words):
        profile_csv(tmp_path / name, batch_rows=10, block_bytes=16)


def test_quote_that_is_never_closed_does_not_fill_the_memory(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("mcflow.files.csv.text.RECORD_BYTES", 200)
    (tmp_path / "a.csv").write_bytes(b'a,b\n1,2\n3,"' + b"4,5\n" * 1000)
    with pytest.raises(DataError, match="begins in line 3 does not end within 200 bytes"):
        profile_csv(tmp_path / "a.csv", batch_rows=10, block_bytes=64)


def test_long_records_make_batches_of_fewer_rows(tmp_path) -> None:
    (tmp_path / "a.csv").write_bytes(b"a,b\n" + b"1,2\n" * 6 + b"1," + b"x" * 100 + b"\n3,4\n")
    profile = profile_csv(tmp_path / "a.csv", batch_rows=4, batch_bytes=12)
    assert [batch.n_rows for batch in profile.batches] == [3, 3, 1, 1]


def test_file_that_changed_after_its_profile_is_an_error(tmp_path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"a,b\n1,2\n3,4\n")
    table = open_table(path)
    path.write_bytes(b"a,b\n1,23333\n")
    with pytest.raises(DataError, match="was changed after"):
        list(table.rows())
