"""Every table at hand goes through with no flag but the file names, and pandas reads the same types."""

from __future__ import annotations

import pandas as pd
import pytest

from mcflow.cli.app import main

TABLES = [
    *("adult", "bean", "breast_cancer_wisconsin", "california", "credit", "letter", "news"),
    *("nhanes_2017_2018", "penguins", "pima", "spambase", "titanic"),
]

#: Rows that are quick to learn from; a slow test takes all of them.
FEW_ROWS = 500


@pytest.mark.filterwarnings("default::mcflow.errors.McflowWarning")
@pytest.mark.parametrize("rows", [FEW_ROWS, pytest.param(None, marks=pytest.mark.slow)])
@pytest.mark.parametrize("ending", ["parquet", "csv"])
@pytest.mark.parametrize("name", TABLES)
def test_table_comes_back_with_its_types(data_folder, tmp_path, capsys, name, ending, rows) -> None:
    source, output = tmp_path / f"in.{ending}", tmp_path / f"out.{ending}"
    read = pd.read_parquet if ending == "parquet" else pd.read_csv
    table = pd.read_parquet(data_folder / f"{name}.parquet").iloc[:rows]
    if ending == "csv":
        table.to_csv(source, index=False)
    else:
        table.to_parquet(source, index=False)
    assert main(["impute", str(source), "-o", str(output), "--max-time", "1"]) == 0
    before, after = read(source), read(output)
    assert list(after.columns) == list(before.columns)
    left = "not filled: cabin" in capsys.readouterr().out
    assert after.isna().sum().sum() == (before["cabin"].isna().sum() if left else 0)
    for column in before:
        seen = before[column].notna()
        pd.testing.assert_series_equal(before[column][seen], after[column][seen], check_dtype=ending == "parquet")
        whole = before[column].dtype.kind == "f" and after[column].dtype.kind == "i"
        assert before[column].dtype == after[column].dtype or (ending == "csv" and whole)
