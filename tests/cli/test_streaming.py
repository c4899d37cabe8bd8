"""Folders of files on the command line: fitted, filled, filled again from a model, and what is refused."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from mcflow.cli.app import main


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        base = rng.normal(size=200)
        table = pa.table(
            {
                "x": pa.array(base, mask=rng.random(200) < 0.2),
                "y": pa.array(2 * base + 0.1 * rng.normal(size=200), mask=rng.random(200) < 0.2),
            }
        )
        (tmp_path / "in").mkdir(exist_ok=True)
        pq.write_table(table, tmp_path / "in" / f"{name}.parquet")
    return tmp_path


def test_folder_is_fitted_and_filled_and_a_second_run_finds_it(folder, capsys) -> None:
    flags = ["--max-epochs", "2", "--progress", "plain"]
    assert (
        main(["impute", str(folder / "in"), "-o", str(folder / "out"), "--save", str(folder / "m.mcflow"), *flags]) == 0
    )
    assert "Filled 400 rows" in capsys.readouterr().out
    filled = pq.read_table(folder / "out" / "a.parquet")
    assert filled.num_rows == 200
    assert all(not column.null_count for column in filled.columns)
    again = ["impute", str(folder / "in"), "-o", str(folder / "out"), "--model", str(folder / "m.mcflow")]
    assert main(again) == 0
    assert "2 of them were already complete" in capsys.readouterr().out
    assert main([*again[:3], str(folder / "one"), *again[4:]]) == 0
    assert pq.read_table(folder / "one" / "a.parquet").equals(filled)


def test_pattern_is_fitted_as_the_folder(folder, capsys) -> None:
    assert (
        main(["fit", str(folder / "in" / "*.parquet"), "-o", str(folder / "m.mcflow"), "--max-epochs", "1", "-q"]) == 0
    )
    assert main(["impute", str(folder / "in" / "a.parquet"), "-o", str(folder / "draws"), "--draws", "2", "-q",
                 "--model", str(folder / "m.mcflow")]) == 0  # fmt: skip
    tables = [pq.read_table(folder / "draws" / f"draw={k}" / "a.parquet", partitioning=None) for k in (1, 2)]
    assert not tables[0].equals(tables[1])


def test_csv_file_into_a_folder_has_the_bytes_of_the_one_filled_in_memory(folder, capsys) -> None:
    source, model = folder / "rows.csv", str(folder / "m.mcflow")
    pacsv.write_csv(pq.read_table(folder / "in" / "a.parquet"), source)
    assert main(["fit", str(source), "-o", model, "--stream", "--max-epochs", "1", "-q"]) == 0
    assert main(["impute", str(source), "-o", str(folder / "whole.csv"), "--model", model, "-q"]) == 0
    assert main(["impute", str(source), "-o", str(folder / "out"), "--model", model, "--progress", "plain"]) == 0
    assert "Filled 200 rows" in capsys.readouterr().out
    assert (folder / "out" / "rows.csv").read_bytes() == (folder / "whole.csv").read_bytes()


def test_csv_folder_is_fitted_and_filled_and_one_with_both_formats_is_refused(folder, capsys) -> None:
    pacsv.write_csv(pq.read_table(folder / "in" / "a.parquet"), folder / "in" / "a.csv")
    flags = ["-o", str(folder / "out"), "--max-epochs", "1", "-q"]
    assert main(["impute", str(folder / "in"), *flags]) == 3
    assert "a.csv is a CSV file and" in capsys.readouterr().err
    assert main(["impute", str(folder / "in" / "*.csv"), *flags]) == 0
    filled = pacsv.read_csv(folder / "out" / "a.csv")
    assert not any(column.null_count for column in filled.columns)


def test_standard_input_does_not_go_into_a_folder(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["impute", "-", "-o", "out"]) == 2
    assert "has to end in one of" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["-o", "out.parquet"], "-o has to name a folder"),
        (["-o", "out", "--interval", "0.9"], "--interval requires a table in memory"),
        (["-o", "out", "--report", "r.html"], "--report needs the whole table"),
    ],
)
def test_flags_that_need_the_whole_table_are_refused(folder, monkeypatch, capsys, flags, words) -> None:
    monkeypatch.chdir(folder)
    assert main(["impute", "in", *flags]) == 2
    assert words in capsys.readouterr().err


def test_folder_without_parquet_is_said(tmp_path, capsys) -> None:
    assert main(["impute", str(tmp_path), "-o", str(tmp_path / "out")]) == 3
    assert "neither a Parquet file" in capsys.readouterr().err
