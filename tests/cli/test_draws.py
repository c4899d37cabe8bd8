"""What is not known of the filled cells, in files: draws beside and below each other, and intervals."""

from __future__ import annotations

import csv
import datetime
import gzip
import io
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mcflow import MCFlowImputer, load
from mcflow.cli import outputs
from mcflow.cli.app import main
from mcflow.cli.impute import print_summary
from mcflow.columns.schema import MISSING_MARKS
from mcflow.files.tables import read_table

QUICK = ["--max-epochs", "2"]
DATE = re.compile(r"\d\d\.\d\d\.20\d\d")

pytestmark = pytest.mark.filterwarnings("ignore:Column 'id' has a different whole number")


@pytest.fixture(scope="module")
def text() -> bytes:
    """Semicolons, decimal commas, quotes, dates, truth values, marks and no last line end, in Windows-1252."""
    rng = np.random.default_rng(0)
    lines = ['id;"größe";gewicht;datum;ja;note;"ort";kinder']
    for k in range(50):
        size = 170 + 10 * rng.normal()
        cells = [str(1000 + 3 * k), f"{size:.1f}0", f"{0.8 * size + rng.normal():.2f}"]
        cells = [cell.replace(".", ",") for cell in cells]
        cells += [f"{1 + k % 28:02d}.{1 + k % 12:02d}.20{10 + k % 9}", ("TRUE", "FALSE")[rng.integers(2)]]
        cells += [("1 low", "2 mid")[rng.integers(2)], ('"A; B"', '"C"')[rng.integers(2)], str(rng.integers(4))]
        hidden = [0, *(rng.random(7) < 0.2)]
        marks = [("", "NA", "?")[rng.integers(3)] if hide else cell for cell, hide in zip(cells, hidden, strict=True)]
        lines.append(";".join(marks))
    return "\r\n".join(lines).encode("cp1252")


@pytest.fixture
def source(text, tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("in.csv").write_bytes(text)
    return Path("in.csv")


@pytest.fixture(scope="module")
def model(text, tmp_path_factory) -> Path:
    """A model of the file, with an ordered column."""
    folder = tmp_path_factory.mktemp("model")
    (folder / "in.csv").write_bytes(text)
    flags = ["-q", "--kind", "note=ordered", "--seed", "3", *QUICK]
    assert main(["fit", str(folder / "in.csv"), "-o", str(folder / "m.mcflow"), *flags]) == 0
    return folder / "m.mcflow"


def run(*arguments: object) -> int:
    return main(["impute", *map(str, arguments)])


def cells(data: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(data.decode("cp1252"), newline=""), delimiter=";"))


def assert_only_holes_differ(before: bytes, after: bytes) -> None:
    """Compare two files cell by cell as they stand between semicolons outside of quotes."""
    split = re.compile(r';(?=(?:[^"]*"[^"]*")*[^"]*$)')
    old, new = (data.decode("cp1252").split("\r\n") for data in (before, after))
    assert len(old) == len(new)
    for line, other in zip(old, new, strict=True):
        for cell, filled in zip(split.split(line), split.split(other), strict=True):
            assert filled not in MISSING_MARKS
            assert cell == filled or cell in MISSING_MARKS


def test_draws_are_numbered_files_that_equal_those_of_the_python_interface(source, text, model, capsys) -> None:
    assert run(source, "-o", "filled.csv", "--draws", 3, "--model", model, "--seed", 5) == 0
    written = [Path(f"filled.{k}.csv").read_bytes() for k in (1, 2, 3)]
    assert not Path("filled.csv").exists()
    assert len(set(written)) == 3
    expected = load(model).draw(read_table(source).table, m=3, random_state=5)
    for data, table in zip(written, expected, strict=True):
        assert_only_holes_differ(text, data)
        Path("one.csv").write_bytes(data)
        assert read_table(Path("one.csv")).table.equals(table)
    said = capsys.readouterr()
    assert "Written to filled.1.csv … filled.3.csv: 3 draws of 50 rows" in said.out
    assert "drew 3 tables" in said.err


def test_seed_decides_the_draws_with_a_model_and_with_a_fit(source, model) -> None:
    for name, seed in {"a": 3, "b": 3, "c": 4}.items():
        assert run(source, "-o", f"{name}.csv", "-q", "--draws", 2, "--model", model, "--seed", seed) == 0
    flags = ["--kind", "note=ordered", "--seed", "3", *QUICK]
    assert run(source, "-o", "d.csv", "-q", "--draws", 2, *flags) == 0
    for k in (1, 2):
        of = {name: Path(f"{name}.{k}.csv").read_bytes() for name in "abcd"}
        assert of["a"] == of["b"] == of["d"]
        assert of["a"] != of["c"]


def test_long_file_holds_the_lines_of_all_draws_with_their_number(source, model, capsys) -> None:
    assert run(source, "-o", "one.csv", "-q", "--draws", 3, "--model", model) == 0
    assert run(source, "-o", "long.csv", "--draws", 3, "--long", "--model", model) == 0
    files = [Path(f"one.{k}.csv").read_text("cp1252").splitlines() for k in (1, 2, 3)]
    expected = [f"{files[0][0]};draw"]
    expected += [f"{line};{k}" for k, lines in enumerate(files, start=1) for line in lines[1:]]
    assert Path("long.csv").read_bytes() == "\r\n".join(expected).encode("cp1252")
    assert "Written to long.csv: 3 draws of 50 rows, 150 rows in total" in capsys.readouterr().out


def test_long_draws_go_to_standard_output(source, model, capfdbinary) -> None:
    assert run(source, "-o", "long.csv", "-q", "--draws", 2, "--long", "--model", model) == 0
    assert run(source, "-o", "-", "--draws", 2, "--long", "--model", model) == 0
    said = capfdbinary.readouterr()
    assert said.out == Path("long.csv").read_bytes()
    assert b"Written to standard output: 2 draws of 50 rows, 100 rows in total" in said.err


def test_number_stands_before_all_endings_of_a_compressed_file(source, model) -> None:
    assert run(source, "-o", "plain.csv", "-q", "--draws", 1, "--model", model) == 0
    assert run(source, "-o", "pack.of.CSV.gz", "-q", "--draws", 1, "--model", model) == 0
    assert gzip.decompress(Path("pack.of.1.CSV.gz").read_bytes()) == Path("plain.1.csv").read_bytes()


@pytest.fixture
def parquet(tmp_path, monkeypatch) -> pa.Table:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    grades = pd.Categorical(rng.choice(["bad", "fair", "good"], 40), ["bad", "fair", "good"], ordered=True)
    frame = pd.DataFrame(
        {
            "x": rng.normal(size=40).astype(np.float32),
            "n": pd.array(rng.integers(0, 99, 40), "Int16"),
            "day": pd.Timestamp("2024-01-31") + pd.to_timedelta(rng.integers(0, 99, 40), "D"),
            "grade": grades,
            "word": rng.choice(["u", "v"], 40),
        }
    )
    frame = frame.mask(rng.random(frame.shape) < 0.2)
    frame.to_parquet("in.parquet")
    return pq.read_table("in.parquet")


def test_parquet_keeps_schema_and_observed_cells_in_every_draw(parquet) -> None:
    assert run("in.parquet", "-o", "out.parquet", "-q", "--draws", 2, *QUICK) == 0
    assert run("in.parquet", "-o", "long.pq", "-q", "--draws", 2, "--long", *QUICK) == 0
    draws = [pq.read_table(f"out.{k}.parquet") for k in (1, 2)]
    for table in draws:
        assert table.schema.equals(parquet.schema, check_metadata=True)
        for name in parquet.column_names:
            seen = parquet.column(name).is_valid()
            assert table.column(name).filter(seen).to_pylist() == parquet.column(name).drop_null().to_pylist()
            assert table.column(name).null_count == 0
    long = pq.read_table("long.pq")
    assert long.column("draw").to_pylist() == [1] * 40 + [2] * 40
    assert long.drop_columns("draw").to_pylist() == pa.concat_tables(draws).to_pylist()
    assert long.schema.field("grade").type == parquet.schema.field("grade").type
    assert len(pd.read_parquet("long.pq")) == 80


def test_formats_of_draws_convert(parquet) -> None:
    assert run("in.parquet", "-o", "out.pq", "-q", "--draws", 2, "--long", *QUICK) == 0
    assert run("in.parquet", "-o", "out.csv", "-q", "--draws", 2, "--long", *QUICK) == 0
    read, expected = pd.read_csv("out.csv", parse_dates=["day"]), pd.read_parquet("out.pq")
    np.testing.assert_array_equal(read["x"].astype(np.float32), expected["x"])
    assert (read["day"] == expected["day"]).all()
    assert list(read["draw"]) == [1] * 40 + [2] * 40


def test_intervals_are_columns_written_as_their_own(source, text, model) -> None:
    assert run(source, "-o", "plain.csv", "-q", "--model", model) == 0
    assert run(source, "-o", "filled.csv", "-q", "--interval", 0.8, "--model", model) == 0
    head, *rows = cells(Path("filled.csv").read_bytes())
    ordered = ["größe", "gewicht", "datum", "note", "kinder"]
    assert head[8:] == [f"{name}.{end}" for name in ordered for end in ("low", "high")]
    assert [row[:8] for row in rows] == cells(Path("plain.csv").read_bytes())[1:]
    low, high = load(model).interval(read_table(source).table, 0.8)
    for name in ordered:
        missing = [row[head.index(name)] in MISSING_MARKS for row in cells(text)[1:]]
        for end, table in {"low": low, "high": high}.items():
            given = [row[head.index(f"{name}.{end}")] for row in rows]
            assert [cell == "" for cell in given] == [not empty for empty in missing]
            expected = [value for value, empty in zip(table.column(name).to_pylist(), missing, strict=True) if empty]
            assert [cell for cell in given if cell] == [spelled(value, name) for value in expected]
    assert any(DATE.fullmatch(row[head.index("datum.low")]) for row in rows)


def spelled(value: object, name: str) -> str:
    if isinstance(value, datetime.date):
        return value.strftime("%d.%m.%Y")
    if name in ("größe", "gewicht"):  # all their cells have two decimals
        return f"{value:.2f}".replace(".", ",")
    return f"{value:g}" if isinstance(value, float) and value.is_integer() else str(value).replace(".", ",")


def test_intervals_of_parquet_have_the_types_of_their_columns(parquet) -> None:
    assert run("in.parquet", "-o", "out.pq", "-q", "--interval", 0.9, *QUICK) == 0
    written = pq.read_table("out.pq")
    for name in ("x", "n", "day", "grade"):
        for end in ("low", "high"):
            column = written.column(f"{name}.{end}")
            assert column.type == parquet.column(name).type
            assert column.is_null().to_pylist() == parquet.column(name).is_valid().to_pylist()
    assert written.num_columns == parquet.num_columns + 8
    frame = pd.read_parquet("out.pq").dropna(subset=["n.low"])
    assert (frame["n.low"] <= frame["n.high"]).all()


def test_columns_without_a_hole_or_a_model_get_no_interval(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"{k * 7 % 10},{k * 3 % 11 if k % 4 else ''},,{k}.low" for k in range(19)]
    Path("in.csv").write_text("a,b,empty,b.lower\n" + "\n".join(rows) + "\n")
    assert run("in.csv", "-o", "out.csv", "-q", "--interval", 0.5, "--role", "b.lower=ignore", *QUICK) == 0
    assert Path("out.csv").read_text().splitlines()[0] == "a,b,empty,b.lower,b.low,b.high"


def equal_rows() -> None:
    """Write 60 equal incomplete rows, 30 complete rows with the same `a` and 30 with another one."""
    rows = [f"{k},{int(k % 4 != 0)},{'' if k % 2 else 0.5 * k}" for k in range(120)]
    Path("in.csv").write_text("row,a,x\n" + "\n".join(rows) + "\n")


@pytest.mark.filterwarnings("default::mcflow.errors.McflowWarning")
def test_equal_rows_are_said_and_drawn_apart_by_their_numbers(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    equal_rows()
    flags = ["-q", "--draws", 1, "--role", "row=ignore", *QUICK]
    assert run("in.csv", "-o", "same.csv", *flags) == 0
    assert "59 of 60 incomplete rows are equal" in capsys.readouterr().err
    assert run("in.csv", "-o", "apart.csv", "--row-ids", "row", *flags) == 0
    assert "are equal" not in capsys.readouterr().err
    assert len(set(pd.read_csv("same.1.csv")["x"][1::2])) == 1
    assert len(set(pd.read_csv("apart.1.csv")["x"][1::2])) > 10


@pytest.mark.filterwarnings("default::mcflow.errors.McflowWarning")
def test_file_of_an_earlier_series_is_said(source, model, capsys) -> None:
    assert run(source, "-o", "out.csv", "-q", "--draws", 3, "--model", model) == 0
    assert capsys.readouterr().err == ""
    assert run(source, "-o", "out.csv", "-q", "--draws", 2, "--model", model) == 0
    assert "out.3.csv was written by an earlier command and is not one of these 2 draws" in capsys.readouterr().err


def test_quiet_prints_nothing_and_progress_is_lines_without_a_terminal(source, model, capsys, monkeypatch) -> None:
    monkeypatch.setattr(outputs, "LINE_EVERY", 0.0)
    for flags in (["--draws", 2], ["--draws", 2, "--long"], ["--interval", 0.9]):
        assert run(source, "-o", "out.csv", "--quiet", "--model", model, *flags) == 0
        said = capsys.readouterr()
        assert said.out == said.err == ""
    assert run(source, "-o", "out.csv", "--draws", 2, "--model", model) == 0
    assert re.fullmatch(r"draw 1/2\ndraw 2/2\ndrew 2 tables in [\d.]+ s\n", capsys.readouterr().err)


def test_flags_of_the_fit_reach_the_imputer(source, capsys) -> None:
    flags = ["--n-models", "2", "--no-calibrate", "--save", "m.mcflow", "--draws", "2"]
    assert run(source, "-o", "out.csv", *flags, *QUICK) == 0
    imputer = load("m.mcflow")
    assert (imputer.n_models, imputer.calibrate, len(imputer.other_models_)) == (2, False, 1)
    assert main(["fit", str(source), "-o", "n.mcflow", "--n-models", "2", *QUICK]) == 0
    assert "and 1 more model." in capsys.readouterr().out
    assert load("n.mcflow").calibrate


def test_names_with_brackets_are_shown_as_they_are(capsys) -> None:
    column = {"name": "[b]x", "kind": "constant", "role": "fill", "missing": 1, "filled": 1}
    print_summary({"rows": 2, "cells": 2, "missing": 1, "filled": 1, "columns": [column]}, ["Written to [i]/a.csv"])
    said = capsys.readouterr().out
    assert said.count("[b]x") == 2
    assert "Written to [i]/a.csv" in said


BAD = {
    "no draw": (["--draws", "0"], 2, "--draws is 0, but has to be a whole number of at least 1"),
    "less than no draw": (["--draws", "-2"], 2, "--draws is -2"),
    "part of a draw": (["--draws", "2.5"], 2, "'2.5' is not an integer"),
    "long without draws": (["--long"], 2, "--long requires --draws. Add the number of draws"),
    "numbers without draws": (["--row-ids", "a"], 2, "--row-ids requires --draws"),
    "several to standard output": (["-o", "-", "--draws", "2"], 2, "Add --long for standard output"),
    "interval of nothing": (["--interval", "0"], 2, "--interval is 0, but has to be above 0 and below 1"),
    "interval of all": (["--interval", "1"], 2, "--interval is 1, but"),
    "interval of no number": (["--interval", "nan"], 2, "--interval is nan, but"),
    "interval and draws": (["--interval", "0.9", "--draws", "2"], 2, "the spread of the draws shows the uncertainty"),
    "column draw": (["--draws", "2", "--long"], 3, "already has a column 'draw', and --long adds one. Rename it"),
    "column of an interval": (["--interval", "0.9"], 3, "that --interval adds: a.high. Rename them"),
    "numbers of no column": (["--draws", "2", "--row-ids", "dra"], 2, "no such column. Did you mean 'draw'"),
    "row ids with missing cells": (["--draws", "2", "--row-ids", "a"], 2, "type double with 1 missing cells"),
    "input is a draw": (["-o", "in.csv", "--draws", "2"], 4, "in.1.csv is given twice"),
    "model is a draw": (["--draws", "2", "--save", "out.2.csv"], 4, "out.2.csv is given twice"),
    "draws without a folder": (["-o", "no/such.csv", "--draws", "2"], 4, "is not a folder"),
    "ending": (["-o", "out.cvs", "--draws", "2"], 2, "Did you mean '.csv'"),
    "models": (["--n-models", "0"], 2, "n_models is 0"),
    "no calibration with a model": (["--model", "m", "--no-calibrate"], 2, "--no-calibrate has no effect"),
    "seed with a model": (["--model", "m", "--seed", "2", "--interval", "0.9"], 2, "--seed has no effect"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_usage_ends_in_one_line_before_any_work(tmp_path, monkeypatch, capsys, case) -> None:
    def fit(self, X):
        raise AssertionError("the fit has begun")

    monkeypatch.chdir(tmp_path)
    if case != "models":
        monkeypatch.setattr(MCFlowImputer, "fit", fit)
    Path("in.1.csv").write_text("a,a.high,draw\n1.5,2,1\n,3,1\n2.5,4,2\n")
    flags, code, words = BAD[case]
    output = [] if "-o" in flags else ["-o", "out.csv"]
    assert run("in.1.csv", *output, *flags) == code
    said = capsys.readouterr()
    assert words in re.sub(r"[\s│]+", " ", said.err)
    assert "Traceback" not in said.err
    assert [path.name for path in tmp_path.iterdir()] == ["in.1.csv"]


# --- formats of other programs


@pytest.fixture
def survey(tmp_path) -> Path:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.integers(20, 80, 60), "bmi": rng.normal(27, 4, 60).round(1)})
    table["sex"] = rng.choice(["f", "m"], 60)
    table["bmi"] = table["bmi"].where(rng.random(60) > 0.3)
    table["sex"] = table["sex"].where(rng.random(60) > 0.2)
    table.to_csv(tmp_path / "survey.csv", index=False)
    return tmp_path / "survey.csv"


def written(survey: Path, layout: str, ending: str = "csv") -> pd.DataFrame:
    output = survey.with_name(f"{layout}.{ending}")
    flags = ["--draws", "3", "--draws-format", layout, "--max-epochs", "1", "-q"]
    assert main(["impute", str(survey), "-o", str(output), *flags]) == 0
    return pd.read_csv(output) if ending == "csv" else pd.read_parquet(output)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("layout", "number", "row"), [("mids", ".imp", ".id"), ("stata", "_mi_m", "_mi_id"), ("spss", "Imputation_", None)]
)
def test_stacked_format_starts_with_the_incomplete_table(survey, layout, number, row, ending) -> None:
    before, found = pd.read_csv(survey), written(survey, layout, ending)
    assert found[number].tolist() == np.repeat([0, 1, 2, 3], len(before)).tolist()
    if row is not None:
        assert found[row].tolist() == [*range(1, len(before) + 1)] * 4
    zero = found[found[number] == 0][before.columns]
    pd.testing.assert_frame_equal(zero, before, check_dtype=False)
    assert not found[found[number] > 0].isna().any().any()


def test_wide_format_adds_a_column_for_every_draw_of_a_filled_column(survey) -> None:
    before, found = pd.read_csv(survey), written(survey, "stata-wide")
    assert list(found) == [*before, *(f"_{k}_{name}" for name in ("bmi", "sex") for k in (1, 2, 3))]
    pd.testing.assert_frame_equal(found[before.columns], before)
    seen = before["bmi"].notna()
    assert (found.loc[seen, "_2_bmi"] == before.loc[seen, "bmi"]).all()
    assert not found.filter(regex="^_").isna().any().any()


def test_mids_format_is_read_by_mice(survey) -> None:
    if shutil.which("Rscript") is None:
        pytest.skip("there is no R")
    if subprocess.run(["Rscript", "-e", "library(mice)"], capture_output=True, check=False).returncode:
        pytest.skip("R has no package mice: apt-get install r-cran-mice")
    found = written(survey, "mids")
    code = """
    suppressPackageStartupMessages(library(mice))
    imp <- as.mids(read.csv("mids.csv", na.strings = c("NA", ""), stringsAsFactors = TRUE))
    cat(imp$m, sum(is.na(imp$data)), mean(complete(imp, 2)$bmi), "\\n")
    """
    done = subprocess.run(
        ["Rscript", "-e", code], cwd=survey.parent, capture_output=True, text=True, check=True
    ).stdout.split()
    before = pd.read_csv(survey)
    assert [int(word) for word in done[:2]] == [3, int(before.isna().sum().sum())]
    assert float(done[2]) == pytest.approx(found.loc[found[".imp"] == 2, "bmi"].mean(), rel=1e-5)


def test_format_of_draws_when_wrong_or_needless_is_refused(survey, capsys) -> None:
    start = ["impute", str(survey), "-o", str(survey.with_name("out.csv"))]
    assert main([*start, "--draws", "2", "--draws-format", "mid"]) == 2
    assert "Did you mean 'mids'" in capsys.readouterr().err
    assert main([*start, "--draws-format", "mids"]) == 2
    assert "--draws-format requires --draws" in capsys.readouterr().err
    assert main([*start, "--draws", "2", "--long", "--draws-format", "mids"]) == 2
    pd.read_csv(survey).rename(columns={"age": ".imp"}).to_csv(survey, index=False)
    assert main([*start, "--draws", "2", "--draws-format", "mids"]) == 3
    assert "already has a column '.imp', and --draws-format mids adds one" in capsys.readouterr().err
