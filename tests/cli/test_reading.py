"""Options of reading files: values for missing cells, lines above the header, and Excel files."""

from __future__ import annotations

import io
import tomllib
from pathlib import Path

import numpy as np
import openpyxl
import pandas as pd
import pyarrow.parquet as pq
import pytest

from mcflow.cli.app import main
from mcflow.columns.schema import numbers_in

QUICK = ["--max-epochs", "1", "--no-calibrate", "-q"]


def write(path: Path, *, titles: str = "") -> Path:
    rng = np.random.default_rng(0)
    ages = np.where(np.arange(90) % 8 == 0, -999, rng.integers(20, 80, 90))
    words = np.where(np.arange(90) % 6 == 0, "refused", rng.normal(50, 5, 90).round(1).astype(str))
    frame = pd.DataFrame({"age": ages, "x": words, "job": rng.choice(["clerk", "cook"], 90)})
    if path.suffix == ".xlsx":
        frame.to_excel(path, index=False)
    elif path.suffix == ".parquet":
        frame.assign(x=rng.normal(size=90)).to_parquet(path)
    else:
        path.write_text(titles + frame.to_csv(index=False, lineterminator="\n"))
    return path


@pytest.mark.parametrize("ending", ["csv", "xlsx", "parquet"])
@pytest.mark.parametrize("flags", [["--na=-999", "--na", "x=refused"], ["--na", "-999,refused"]])
def test_values_of_na_are_filled_in_every_format(tmp_path, ending, flags) -> None:
    source, output = write(tmp_path / f"in.{ending}"), tmp_path / f"out.{ending}"
    assert main(["impute", str(source), "-o", str(output), *flags, *QUICK]) == 0
    read = {"csv": pd.read_csv, "xlsx": pd.read_excel, "parquet": pd.read_parquet}[ending]
    before, after = read(source), read(output)
    assert after["age"].between(20, 80).all()
    assert after["age"].dtype == before["age"].dtype
    assert pd.to_numeric(after["x"]).notna().all()
    kept = before["age"] != -999
    assert (after["age"][kept] == before["age"][kept]).all()


def test_na_is_remembered_by_a_model_and_applies_to_folders(tmp_path) -> None:
    (tmp_path / "in").mkdir()
    source, model = write(tmp_path / "in" / "a.csv"), tmp_path / "model"
    flags = ["--na", "age=-999", "--na", "x=refused"]
    assert main(["fit", str(source), "-o", str(model), *flags, *QUICK]) == 0
    assert main(["impute", str(source), "-o", str(tmp_path / "one.csv"), "--model", str(model), "-q"]) == 0
    assert main(["impute", str(tmp_path / "in"), "-o", str(tmp_path / "out"), "--model", str(model), "-q"]) == 0
    assert (tmp_path / "out" / "a.csv").read_text() == (tmp_path / "one.csv").read_text()
    assert "refused" not in (tmp_path / "one.csv").read_text()
    assert "-999" not in (tmp_path / "one.csv").read_text()
    assert main(["impute", str(tmp_path / "in"), "-o", str(tmp_path / "fitted"), *flags, *QUICK]) == 0
    assert "-999" not in (tmp_path / "fitted" / "a.csv").read_text()
    assert main(["check", str(source), "--model", str(model)]) == 0


@pytest.mark.parametrize("flags", [["--na", "auto"], ["--skip-rows", "1"]])
def test_options_that_need_the_whole_table_are_refused_for_folders(tmp_path, capsys, flags) -> None:
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / "a.csv")
    assert main(["impute", str(tmp_path / "in"), "-o", str(tmp_path / "out"), *flags, *QUICK]) == 2
    assert "requires a table in memory" in capsys.readouterr().err


def test_title_lines_are_skipped_and_kept_and_an_error_names_the_flag(tmp_path, capsys) -> None:
    source, output = write(tmp_path / "in.csv", titles="A survey\n\n"), tmp_path / "out.csv"
    flags = ["--na", "-999,refused", *QUICK]
    assert main(["impute", str(source), "-o", str(output), *flags]) == 3
    assert "--skip-rows" in capsys.readouterr().err
    assert main(["impute", str(source), "-o", str(output), "--skip-rows", "2", *flags]) == 0
    assert output.read_text().startswith("A survey\n\nage,x,job\n")
    assert (
        main(["evaluate", str(source), "--skip-rows", "2", "--methods", "mean", "--max-time", "1", *flags[:2], "-q"])
        == 0
    )


def test_workbook_keeps_other_sheets_formats_and_formulas(tmp_path) -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.append(["a", "b", "c"])
    for k in range(40):
        sheet.append([None if k % 7 == 3 else k * 1.5 + 0.25, k % 5, f"=B{k + 2}*2"])
        sheet.cell(k + 2, 1).number_format = "0.00"
    book.create_sheet("notes").append(["kept"])
    book.save(tmp_path / "in.xlsx")
    assert main(["impute", str(tmp_path / "in.xlsx"), "-o", str(tmp_path / "out.xlsx"), *QUICK]) == 0
    after = openpyxl.load_workbook(io.BytesIO((tmp_path / "out.xlsx").read_bytes()))
    rows = list(after.worksheets[0].iter_rows(values_only=True))[1:]
    assert after["notes"]["A1"].value == "kept"
    assert [row[2] for row in rows] == [f"=B{k + 2}*2" for k in range(40)]
    assert all(isinstance(row[0], int | float) and round(row[0], 2) == row[0] for row in rows)
    assert after.worksheets[0]["A5"].number_format == "0.00"


def test_draws_and_intervals_of_a_workbook_are_written_to_a_workbook_and_to_parquet(tmp_path) -> None:
    source = write(tmp_path / "in.xlsx")
    flags = ["--na", "-999,refused", *QUICK]
    assert main(["impute", str(source), "-o", str(tmp_path / "long.xlsx"), "--draws", "2", "--long", *flags]) == 0
    assert len(pd.read_excel(tmp_path / "long.xlsx")) == 180
    assert main(["impute", str(source), "-o", str(tmp_path / "out.xlsx"), "--interval", "0.9", *flags]) == 0
    assert list(pd.read_excel(tmp_path / "out.xlsx").columns) == [
        "age",
        "x",
        "job",
        "age.low",
        "age.high",
        "x.low",
        "x.high",
    ]
    assert main(["impute", str(source), "-o", str(tmp_path / "out.parquet"), *flags]) == 0
    assert [str(kind) for kind in pq.read_schema(tmp_path / "out.parquet").types] == ["int64", "double", "string"]


def test_file_that_is_no_workbook_is_refused(tmp_path, capsys) -> None:
    (tmp_path / "in.xlsx").write_bytes(b"no zip")
    assert main(["impute", str(tmp_path / "in.xlsx"), "-o", str(tmp_path / "out.csv"), "-q"]) == 3
    assert "cannot be read as excel" in capsys.readouterr().err


def test_inspect_and_schema_read_files_as_impute_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "rows.csv", tmp_path / "schema.toml"
    rows = "".join(f"{40 + i % 37},{-999 if i % 9 == 0 else 110 + i % 31}\n" for i in range(90))
    source.write_text("A title\nage,sbp\n" + rows)
    main(["inspect", str(source), "--skip-rows", "1", "--na", "sbp=-999"])
    shown = capsys.readouterr().out
    assert "90 rows, 2 columns, 10 missing cells" in shown
    assert "may stand" not in shown
    main(["schema", str(source), "-o", str(target), "--skip-rows", "1", "--na", "sbp=-999"])
    described = tomllib.loads(target.read_text())["columns"]["sbp"]
    assert numbers_in(described["missing"]) == [-999]
    assert described["bounds"] == [110, 140]


def test_suspected_codes_of_several_files_have_to_be_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    write(folder / "a.csv")
    assert main(["impute", str(folder), "-o", str(tmp_path / "out"), "--na", "auto", *QUICK]) == 2
    assert "Run `mcflow inspect` on one of the files" in capsys.readouterr().err
