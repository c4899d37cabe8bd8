"""Inspection of an uploaded file before the fit."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mcflow.errors import DataError
from mcflow.files.tables import read_table
from mcflow.serve.uploads import describe, main

LIMITS = {"max_rows": 1000, "max_columns": 50, "max_cells": 20_000, "max_bytes": 1_000_000}


def described(tmp_path: Path, text: str | bytes, name: str = "upload.csv", **limits: int) -> dict:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return describe(read_table(path), LIMITS | limits)


def test_inspection_lists_kinds_missing_cells_and_values(tmp_path, table_text) -> None:
    found = described(tmp_path, table_text)
    kinds = {column["name"]: column["kind"] for column in found["columns"]}
    numbers = {"age": "integer", "height": "continuous", "weight": "continuous", "systolic": "integer"}
    assert kinds == numbers | {"smoker": "category", "site": "integer", "visit": "datetime"}
    assert found["rows"] == 120
    assert found["missing"] == sum(column["missing"] for column in found["columns"]) > 0
    assert found["columns"][4]["examples"] == ["daily", "former", "never"]
    assert [float(end) for end in found["columns"][0]["range"]] == sorted(map(float, found["columns"][0]["range"]))
    assert found["problem"] == ""
    json.dumps(found, allow_nan=False)


def test_preview_shows_cells_as_they_are_written_and_missing_cells_as_none(tmp_path) -> None:
    found = described(tmp_path, 'a,b\n"1.50",\n2.0,"x, y"\n')
    assert found["preview"] == [["1.50", None], ["2.0", "x, y"]]


def test_table_that_cannot_be_filled_is_described_with_the_reason(tmp_path) -> None:
    found = described(tmp_path, "a\n" + "\n".join(f"text {i}" for i in range(60)) + "\n")
    assert "nothing to learn" in found["problem"]
    assert found["columns"][0]["kind"] == "identifier"


def test_single_column_is_described(tmp_path) -> None:
    found = described(tmp_path, "a\n1\n2.5\n\n3\n4\n")
    assert [column["kind"] for column in found["columns"]] == ["continuous"]


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"max_rows": 5}, "10 rows, and this server accepts 5"),
        ({"max_columns": 1}, "2 columns"),
        ({"max_cells": 9}, "20 cells"),
    ],
)
def test_too_large_table_is_rejected_with_the_limit(tmp_path, limits, words) -> None:
    with pytest.raises(DataError, match=words):
        described(tmp_path, "a,b\n" + "1,2\n" * 10, **limits)


def test_header_without_rows_is_rejected(tmp_path) -> None:
    with pytest.raises(DataError, match="no rows"):
        described(tmp_path, "a,b\n")


@pytest.mark.parametrize(
    "array",
    [
        pa.array([1, None, 3], pa.decimal128(5, 2)),
        pa.array([[1], None, [2, 3]]),
        pa.array([None, None, None], pa.int32()),
        pa.array([1.5, float("nan"), float("inf")]),
        pa.array(["a", "b", None]).dictionary_encode(),
        pa.array([0, None, 10**15], pa.timestamp("us", "UTC")),
        pa.array([b"a", None, b"b"]),
        pa.array([{"x": 1}, None, {"x": 2}]),
    ],
    ids=lambda array: str(array.type)[:12],
)
def test_description_of_any_parquet_type_is_plain_json(tmp_path, array) -> None:
    path = tmp_path / "upload.parquet"
    pq.write_table(pa.table({"c": array, "d": [1.0, 2.0, 4.5]}), path)
    json.dumps(describe(read_table(path), LIMITS), allow_nan=False)


def test_parquet_that_unpacks_to_too_much_is_refused_by_its_footer(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"a": ["x" * 100_000 + str(i) for i in range(200)]}), "upload.parquet", compression="zstd")
    assert Path("upload.parquet").stat().st_size < 1_000_000
    with pytest.raises(DataError, match="decompresses to"):
        main(LIMITS | {"upload": "upload.parquet"})
    pq.write_table(pa.table({"a": [1] * 2000}), "upload.parquet")
    with pytest.raises(DataError, match="2,000 rows"):
        main(LIMITS | {"upload": "upload.parquet"})


def test_file_that_is_no_parquet_is_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("upload.parquet").write_bytes(b"a,b\n1,2\n")
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        main(LIMITS | {"upload": "upload.parquet"})
    assert not Path("schema.json").exists()


def test_workbook_that_unpacks_to_too_much_is_refused_by_its_directory(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile("upload.xlsx", "w", zipfile.ZIP_DEFLATED) as book:
        book.writestr("xl/worksheets/sheet1.xml", b" " * 2_000_000)
    assert Path("upload.xlsx").stat().st_size < 10_000
    with pytest.raises(DataError, match="decompresses to more than 1,000,000 bytes"):
        main(LIMITS | {"upload": "upload.xlsx"})


def test_workbook_within_the_limit_is_described(tmp_path, monkeypatch) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    monkeypatch.chdir(tmp_path)
    book = openpyxl.Workbook()
    for row in (["a", "b"], [1.5, None], [2.5, 3], [4.0, 5]):
        book.active.append(row)
    book.save("upload.xlsx")
    main(LIMITS | {"upload": "upload.xlsx"})
    assert json.loads(Path("schema.json").read_text())["rows"] == 3


def test_inspection_gives_the_reason_and_the_kinds_that_a_column_may_have(tmp_path) -> None:
    found = described(
        tmp_path, "n,word,day\n" + "\n".join(f"{k % 7},{'xyz'[k % 3]},2024-01-{1 + k % 28:02d}" for k in range(60))
    )
    columns = {column["name"]: column for column in found["columns"]}
    assert columns["n"]["why"] == "whole numbers, 0 to 6"
    assert columns["n"]["kinds"] == ["continuous", "integer", "category", "ordered", "identifier", "text"]
    assert columns["word"]["kinds"] == ["category", "ordered", "identifier", "text"]
    assert columns["day"]["kinds"] == ["datetime", "identifier", "text"]
