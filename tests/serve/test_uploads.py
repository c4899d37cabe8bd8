"""Names, endings and bombs."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pytest

from mcflow.errors import DataError
from mcflow.serve.uploads import ending_of, plain_name, refuse_bad_content


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (r"C:\Users\me\my rows.csv", "my rows.csv"),
        ("../../.ssh/rows.csv", "rows.csv"),
        ("a\x00\nb.csv", "ab.csv"),
        (None, ""),
        ('x<y>".csv', "xy.csv"),
        ("..", ""),
    ],
)
def test_name_loses_folders_and_signs_that_do_harm(given, kept) -> None:
    assert plain_name(given) == kept


@pytest.mark.parametrize("name", ["rows.ods", "rows", "", "rows.csv.exe", ".gz"])
def test_ending_of_another_kind_is_refused_with_the_kinds(name) -> None:
    with pytest.raises(DataError, match=r"\.csv"):
        ending_of(name)


def test_ending_is_found_in_any_case() -> None:
    assert [ending_of(name) for name in ("A.CSV", "b.tsv.Zst", "c.d.parquet")] == [".csv", ".tsv.zst", ".parquet"]


def packed(folder: Path, ending: str, content: bytes) -> Path:
    path = folder / f"upload.csv{ending}"
    path.write_bytes(gzip.compress(content) if ending == ".gz" else pa.Codec("zstd").compress(content, asbytes=True))
    return path


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_bomb_is_refused_before_it_is_unpacked_whole(tmp_path, ending) -> None:
    bomb = packed(tmp_path, ending, b"a,b\n" + b"0" * 50_000_000)
    assert bomb.stat().st_size < 100_000
    with pytest.raises(DataError, match=r"rows\.csv\.gz decompresses to more than 5 MB"):
        refuse_bad_content(bomb, "rows.csv.gz", 5_000_000)
    refuse_bad_content(bomb, "rows.csv.gz", 60_000_000)


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_damaged_archive_is_refused(tmp_path, ending) -> None:
    whole = packed(tmp_path, ending, b"a,b\n1,2\n" * 1000)
    whole.write_bytes(whole.read_bytes()[:-9])
    with pytest.raises(DataError, match="cannot be decompressed"):
        refuse_bad_content(whole, "rows", 1_000_000)
    whole.write_bytes(b"not packed at all")
    with pytest.raises(DataError, match="cannot be decompressed"):
        refuse_bad_content(whole, "rows", 1_000_000)


def test_empty_file_is_refused(tmp_path) -> None:
    path = tmp_path / "upload.csv"
    path.touch()
    with pytest.raises(DataError, match=r"rows\.csv is empty"):
        refuse_bad_content(path, "rows.csv", 10)
