"""CSV files in any dialect: only filled cells change, and all other bytes stay."""

from __future__ import annotations

import codecs
import csv
import io
import tempfile
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mcflow.columns.schema import MISSING_MARKS
from mcflow.errors import DataError
from mcflow.files.csv import layout as csv_layout
from mcflow.files.csv.layout import find_separator, scan, splice
from mcflow.files.csv.text import open_text
from mcflow.files.tables import TableFile, read_table, write_table

LETTERS = "abzäö€ ,;|\t\"'\n\r.-0"
BOMS = {"utf-8": codecs.BOM_UTF8, "utf-16-le": codecs.BOM_UTF16_LE, "utf-16-be": codecs.BOM_UTF16_BE}


@dataclass(frozen=True)
class Kind:
    """A kind of column: a cell that determines the kind, other cells, and a filled value with its text."""

    sure: str
    others: st.SearchStrategy[str]
    value: Any
    text: str
    number: bool = False


texts = st.text(LETTERS, min_size=1).filter(lambda text: text.strip() not in MISSING_MARKS)
days = st.dates(date(1900, 1, 1), date(2200, 1, 1))
times = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1))
KINDS = {
    "whole": Kind("12", st.integers(-(2**62), 2**62).map(str), 7, "7", True),
    "real": Kind("1.5", st.floats(allow_nan=False, allow_infinity=False).map(repr), -0.25, "-0.25", True),
    "real filled with whole": Kind("1.5e0", st.floats(-9, 9).map(repr), 8.0, "8", True),
    "truth values": Kind("TRUE", st.sampled_from(["TRUE", "FALSE"]), False, "FALSE"),
    "text": Kind("word", texts, 'n,e;w "x"', 'n,e;w "x"'),
    "code": Kind("007", st.integers(0, 9).map(str), "08", "08"),
    "iso": Kind("2024-02-29", days.map(str), date(1969, 5, 4), "1969-05-04"),
    "german": Kind("29.02.2024", days.map(lambda d: d.strftime("%d.%m.%Y")), date(2001, 5, 4), "04.05.2001"),
    "american": Kind(
        "02/29/2024 10:30",
        times.map(lambda t: t.strftime("%m/%d/%Y %H:%M")),
        datetime(1950, 1, 2, 3, 4),
        "01/02/1950 03:04",
    ),
}


@dataclass(frozen=True)
class Way:
    """How to write a file."""

    separator: str
    quoting: str
    newline: str
    final_newline: bool
    encoding: str
    bom: bool
    decimal: str

    def cell(self, text: str, number: bool = False, fresh: bool = True) -> str:
        if not fresh and text in MISSING_MARKS and self.quoting != "all":
            return text
        needed = any(letter in text for letter in self.separator + '"\r\n')
        if needed or self.quoting == "all" or (self.quoting == "text" and not number):
            return '"' + text.replace('"', '""') + '"'
        return text

    def file(self, lines: list[list[str]], end: bool) -> bytes:
        text = self.newline.join(self.separator.join(line) for line in lines) + self.newline * end
        return (BOMS[self.encoding] if self.bom else b"") + text.encode(self.encoding)


@st.composite
def ways(draw: st.DrawFn, n_columns: int) -> Way:
    separator = draw(st.sampled_from(",;|\t")) if n_columns > 1 else ","
    encoding = draw(st.sampled_from(["utf-8", "utf-16-le", "utf-16-be", "cp1252"]))
    return Way(
        separator,
        draw(st.sampled_from(["needed", "text", "all"])),
        draw(st.sampled_from(["\n", "\r\n"])),
        draw(st.booleans()),
        encoding,
        encoding.startswith("utf-16") or (encoding == "utf-8" and draw(st.booleans())),
        draw(st.sampled_from(".,")) if separator != "," else ".",
    )


@st.composite
def files(draw: st.DrawFn) -> tuple[Way, list[Kind], list[list[str]]]:
    kinds = [KINDS[name] for name in draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=5))]
    way = draw(ways(len(kinds)))
    missing = st.sampled_from(["", "NA", "?"])
    columns = []
    for kind in kinds:
        cells = [kind.sure, *draw(st.lists(st.one_of(kind.others, missing), min_size=4, max_size=4))]
        columns.append([cell.replace(".", way.decimal) if kind.number else cell for cell in cells])
    return way, kinds, [list(row) for row in zip(*columns, strict=True)]


def fill(source: TableFile, kinds: list[Kind]) -> pa.Table:
    columns = []
    for kind, column in zip(kinds, source.table.columns, strict=True):
        value = pa.scalar(kind.value, column.type)
        columns.append(pc.if_else(column.is_null(), value, column))
    return pa.table(columns, names=source.table.column_names)


def round_trip(data: bytes, change: Any, ending: str = ".csv") -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path, output = Path(folder) / f"in{ending}", Path(folder) / f"out{ending}"
        path.write_bytes(data)
        source = read_table(path)
        write_table(output, change(source), source)
        return output.read_bytes()


@given(files())
def test_only_filled_cells_change_in_every_dialect(file) -> None:
    way, kinds, rows = file
    names = ["c0", 'x,"y";z', "n\näme", "c3", "c4"][: len(kinds)]
    fills = [kind.text.replace(".", way.decimal) if kind.number else kind.text for kind in kinds]
    old = new = [[way.cell(name) for name in names]]
    for row in rows:
        filled = [new if cell in MISSING_MARKS else cell for cell, new in zip(row, fills, strict=True)]
        old = [*old, [way.cell(cell, kind.number, fresh=False) for cell, kind in zip(row, kinds, strict=True)]]
        new = [*new, [way.cell(cell, kind.number) for cell, kind in zip(filled, kinds, strict=True)]]
    end = way.final_newline or old[-1] == [""]  # an empty line without an end is none
    assert round_trip(way.file(old, end), lambda source: fill(source, kinds)) == way.file(new, end)
    assert round_trip(way.file(old, end), lambda source: source.table) == way.file(old, end)


KEPT = {
    "mixed quotes": b'a,b\n"1",2\n3,"4"\n,5\n',
    "mixed line ends": b"a,b\r\n1,2\n3,4\r\n",
    "empty lines between and after": b"\n\na,b\n\n1,2\n\r\n3,4\n\n\n",
    "quotes within plain cells": b'size,n\n5" pipe,1\n"6"" pipe, long",2\n7" x "8",3\n',
    "text after a closing quote": b'a,b\n"x"y,1\n"z",2\n',
    "white space": b" a ,b\n  1 , x \n 2, NA \n",
    "carriage returns alone": b"a,b\r1,2\r3,4\r",
    "carriage return in a cell": b"a,b\n1\r2,2\n3,4\n",
    "odd bytes": b"a,b\nx\x81\x8d\xff,1\ny,2\n",
    "all letters of latin-1": b"a,b\n" + bytes(range(0xA0, 0x100)) + b",1\n",
    "header without an end": b"a,b",
    "separator at the end of each line": b"a,b,\n1,2,\n",
    "numbers of all sorts": b"a,b,c\n1e3,+5,007\n.5,-0,1\n1.,3,2\n",
    "quoted empties": b'a,b\n"",1\n"NA",2\n',
    "umlauts in utf-8": "größe,ß\n1,ä\n".encode(),
}


@pytest.mark.parametrize("case", KEPT)
def test_file_that_nothing_is_filled_in_stays_as_it_is(case) -> None:
    assert round_trip(KEPT[case], lambda source: source.table) == KEPT[case]


def test_one_column_keeps_its_empty_lines_and_fills_them() -> None:
    data = b"a\n1\n\n3\n\n"
    seen = []
    filled = round_trip(data, lambda source: seen.append(source.table) or fill(source, [KINDS["whole"]]))
    assert seen[0].column("a").to_pylist() == [1, None, 3, None]
    assert filled == b"a\n1\n7\n3\n7\n"


def test_columns_that_are_new_or_gone_leave_the_others_alone() -> None:
    data = b'a;b;c;d\r\n"x";;"1,5" ;TRUE\r\n"y";2;3;\r\n'

    def change(source: TableFile) -> pa.Table:
        table = source.table.select(["b", "d"])
        table = table.append_column("e", pa.array([0.5, None])).append_column("f;g", pa.array([True, False]))
        return table.set_column(0, "b", pa.array([9, 2]))

    assert round_trip(data, change) == b'b;d;e;"f;g"\r\n9;TRUE;0,5;TRUE\r\n2;;;FALSE\r\n'
    assert round_trip(data, lambda source: source.table.select(["c"])) == b'c\r\n"1,5" \r\n3\r\n'


def test_columns_in_another_order_keep_their_text() -> None:
    data = b'\xef\xbb\xbf"a";"b"\r\n"1,50";"x;y"\r\n"";"z"'

    def change(source: TableFile) -> pa.Table:
        return pa.table({"b": source.table.column("b"), "a": [1.5, 0.125]})

    assert round_trip(data, change) == b'\xef\xbb\xbf"b";"a"\r\n"x;y";"1,50"\r\n"z";"0,125"'


@given(
    st.lists(st.lists(st.text('ab,"\n ;'), min_size=3, max_size=3), min_size=2),
    st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
)
def test_cells_are_those_of_another_reader(rows, quoting) -> None:
    handle = io.StringIO()
    csv.writer(handle, quoting=quoting, lineterminator="\n").writerows(rows)
    layout = scan(handle.getvalue().encode(), ",")
    columns = [layout.column(place)[0].to_pylist() for place in range(3)]
    assert [list(row) for row in zip(*columns, strict=True)] == rows


@given(st.text('a,"\n'), st.text('a,"\n'))
@example('5" a', '"x,y"')
def test_cells_with_stray_quotes_are_those_of_another_reader(left, right) -> None:
    text = f"{left},{right}\n"
    lines = list(csv.reader(io.StringIO(text)))
    closed = csv.reader(io.StringIO(text + '"'))
    if len(list(closed)) == len(lines) or len({len(line) for line in lines if line}) > 1:
        with pytest.raises(ValueError, match="line"):
            scan(text.encode(), ",")
        return
    layout = scan(text.encode(), ",")
    while not lines[0]:
        lines = lines[1:]
    assert layout.ends.shape[1] == len(lines[0])
    assert len(layout.starts) == (len(lines) if layout.ends.shape[1] == 1 else sum(map(bool, lines)))


BROKEN = {
    "ragged": (b"p,q\n1,2\n\n1,2,3\n", r"line 4 has 3 cells, and the first line has 2"),
    "ragged after a line break in a cell": (b'p,q\n"a\nb",2\n1\n', r"line 4 has 1 cell,"),
    "zero bytes": (b"a,b\n\x00,1\n", "zero bytes"),
    "utf-16 without a mark": ("a,b\n1,2\n".encode("utf-16-le"), "zero bytes"),
    "half a letter of utf-16": (codecs.BOM_UTF16_LE + b"a\x00b", "truncated data"),
    "an image": (b"\x89PNG\r\n\x1a\n", "control characters"),
    "open quote": (b'a,b\n1,2\n"x,3\n4,5\n', "quote that opens in line 3 is never closed"),
    "open quote and a stray one": (b'a,b\n5" x,2\n"y,3\n', "quote that opens in line 3 is never closed"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_invalid_file_is_refused_with_the_line(tmp_path, case) -> None:
    data, words = BROKEN[case]
    path = tmp_path / "in.csv"
    path.write_bytes(data)
    with pytest.raises(DataError, match=f"in.csv cannot be read as csv: .*{words}"):
        read_table(path)


@pytest.mark.parametrize("data", [b"", b"\n\r\n\n", codecs.BOM_UTF8, codecs.BOM_UTF16_LE, b"  \n"])
def test_file_without_a_header_is_empty(tmp_path, data) -> None:
    (tmp_path / "in.csv").write_bytes(data)
    with pytest.raises(DataError, match=r"in\.csv is empty"):
        read_table(tmp_path / "in.csv")


def test_separator_is_the_one_that_fits_all_lines() -> None:
    assert find_separator(b"a;b,c\n1,2\n3,4\n") == ","
    assert find_separator(b"a b;c, m\n1,5;2,5\n") == ";"
    assert find_separator(b"a\tb;c\n1;2\t3;4\n") == "\t"
    assert find_separator(b"a|b\n1|2,3\n", default="\t") == "|"
    assert find_separator(b"a\n1\n", default="\t") == "\t"
    assert find_separator(b"a;b,c\n1\n2,3,4\n") == ","
    assert find_separator(b"a;b\n" + b"1,5;2\n" * 300_000) == ";"


@pytest.mark.parametrize(
    ("data", "encoding", "bom", "content"),
    [
        ("ä".encode(), "utf-8", False, "ä"),
        ("ä".encode("utf-8-sig"), "utf-8", True, "ä"),
        ("ä€".encode("cp1252"), "cp1252", False, "ä€"),
        (b"\x81\xe4", "latin-1", False, "\x81ä"),
        (codecs.BOM_UTF16_BE + "ä€".encode("utf-16-be"), "utf-16-be", True, "ä€"),
    ],
)
def test_encoding_is_found_in_memory_and_in_files(tmp_path, data, encoding, bom, content) -> None:
    (tmp_path / "in.csv").write_bytes(data)
    for given_bytes in (None, data):
        text = open_text(tmp_path / "in.csv", given_bytes)
        assert (text.encoding, text.bom, text.whole()) == (encoding, bom, content.encode())


@given(st.binary(max_size=20), st.sets(st.integers(0, 20)), st.lists(st.binary(max_size=3), min_size=11, max_size=11))
def test_splice_puts_pieces_between_what_it_keeps(text, cuts, pieces) -> None:
    offsets = sorted(cut for cut in cuts if cut <= len(text))
    pairs = list(zip(offsets[0::2], offsets[1::2], strict=False))
    expected, last = b"", 0
    for (start, stop), piece in zip(pairs, pieces, strict=False):
        expected, last = expected + text[last:start] + piece, stop
    back = list(reversed(list(zip(pairs, pieces, strict=False))))
    starts, stops = (np.array([pair[k] for pair, _ in back], dtype=np.int64) for k in (0, 1))
    given_pieces = pa.array([piece for _, piece in back], pa.binary())
    assert splice(text, starts, stops, given_pieces) == expected + text[last:]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_layout, "_PIECES", 2)
        assert splice(text, starts, stops, given_pieces) == expected + text[last:]
